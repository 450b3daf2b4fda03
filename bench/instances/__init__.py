"""Several control planes on one database: what each costs, what the database costs, and what more of them would."""
