"""Where documents are kept: in SQLite, in PostgreSQL, in a folder of files, in memory."""
