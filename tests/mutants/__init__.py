"""`make mutants`: small changes to the code, each of which some test has to notice (record 0101)."""
