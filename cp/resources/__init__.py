"""Documents that were understood: the schema of each kind, and the World that holds all resources of one revision."""
