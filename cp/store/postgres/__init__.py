"""A store in PostgreSQL, which control planes on several machines share. See record 0079."""
