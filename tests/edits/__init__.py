"""Edits under load: each edit of a table is made again and again under calls of every protocol, and none is lost."""
