-- What is stored, and every change that led there. A revision is the number of one write; it has one row in `changes`
-- for each document that it changed, written in the same transaction. The texts are those of a store in SQLite: `json`,
-- and not `jsonb`, keeps them as they were written.

-- One row, which every write locks: so revisions are in the order of commits and without gaps.
-- `oldest` is the revision after which all changes are kept, `written` the size of all that was ever written to the log.
CREATE TABLE koguma.head (
    single   boolean PRIMARY KEY DEFAULT true CHECK (single),
    revision bigint  NOT NULL DEFAULT 0,
    oldest   bigint  NOT NULL DEFAULT 0,
    written  bigint  NOT NULL DEFAULT 0
) WITH (fillfactor = 10);

INSERT INTO koguma.head DEFAULT VALUES;

CREATE TABLE koguma.documents (
    type     text        COLLATE "C" NOT NULL,
    mesh     text        COLLATE "C" NOT NULL,
    name     text        COLLATE "C" NOT NULL,
    data     json        NOT NULL,
    source   json        NOT NULL,
    revision bigint      NOT NULL,
    created  timestamptz NOT NULL,
    modified timestamptz NOT NULL,
    PRIMARY KEY (type, mesh, name)
);

-- `written` is the size of the log up to and with this change. `mark` is that of the transaction: who was cut
-- off while he committed finds by it whether he did.
CREATE TABLE koguma.changes (
    revision      bigint      NOT NULL,
    position      integer     NOT NULL,
    type          text        COLLATE "C" NOT NULL,
    mesh          text        COLLATE "C" NOT NULL,
    name          text        COLLATE "C" NOT NULL,
    before        json,
    before_source json,
    after         json,
    after_source  json,
    at            timestamptz NOT NULL,
    author        text        NOT NULL,
    origin        text        NOT NULL,
    written       bigint      NOT NULL,
    mark          uuid        NOT NULL,
    PRIMARY KEY (revision, position)
);

CREATE INDEX changes_of_a_document ON koguma.changes (type, mesh, name, revision);
