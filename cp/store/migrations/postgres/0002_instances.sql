-- compatible with: 1
-- Which control planes share this database, and which of them holds what only one may. Nothing here makes a revision,
-- and nobody is notified. They are not worth a wait for the disk: after a crash everybody says again that he is there.

CREATE TABLE koguma.instances (
    id        text        PRIMARY KEY,
    name      text        NOT NULL,
    address   text        NOT NULL,
    authority text        NOT NULL,
    version   text        NOT NULL,
    started   timestamptz NOT NULL,
    revision  bigint      NOT NULL,
    seen      timestamptz NOT NULL
) WITH (fillfactor = 50);

-- `term` never goes back, so a row stays when its lease has ended.
CREATE TABLE koguma.leases (
    name   text        PRIMARY KEY,
    holder text        NOT NULL,
    term   bigint      NOT NULL,
    ends   timestamptz NOT NULL
) WITH (fillfactor = 50);
