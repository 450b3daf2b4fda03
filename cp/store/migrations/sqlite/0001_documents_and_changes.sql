-- What is stored, and every change that led there. A revision is the number of one write; it has one row in `changes`
-- for each document that it changed, written in the same transaction.

CREATE TABLE documents (
    type     TEXT    NOT NULL,
    mesh     TEXT    NOT NULL,
    name     TEXT    NOT NULL,
    data     TEXT    NOT NULL CHECK (json_valid(data)),
    source   TEXT    NOT NULL CHECK (json_valid(source)),
    revision INTEGER NOT NULL,
    created  TEXT    NOT NULL,
    modified TEXT    NOT NULL,
    PRIMARY KEY (type, mesh, name)
) STRICT;

CREATE TABLE changes (
    revision      INTEGER NOT NULL,
    position      INTEGER NOT NULL,
    type          TEXT    NOT NULL,
    mesh          TEXT    NOT NULL,
    name          TEXT    NOT NULL,
    before        TEXT,
    before_source TEXT,
    after         TEXT,
    after_source  TEXT,
    at            TEXT    NOT NULL,
    PRIMARY KEY (revision, position)
) STRICT;

CREATE INDEX changes_of_a_document ON changes (type, mesh, name, revision);
