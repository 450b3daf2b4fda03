"""Where documents are kept: in SQLite, in a folder of files, in memory."""
