"""What the commands and the agent share: a client of the HTTP API, files of documents, and problems in words."""
