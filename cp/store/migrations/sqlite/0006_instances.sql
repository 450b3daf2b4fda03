-- compatible with: 4
-- Which control planes share this file, and which of them holds what only one may. Times are seconds since 1970, by the
-- clock of this machine. Nothing here makes a revision.

CREATE TABLE instances (
    id        TEXT    PRIMARY KEY,
    name      TEXT    NOT NULL,
    address   TEXT    NOT NULL,
    authority TEXT    NOT NULL,
    version   TEXT    NOT NULL,
    started   REAL    NOT NULL,
    revision  INTEGER NOT NULL,
    seen      REAL    NOT NULL
) STRICT;

-- `term` never goes back, so a row stays when its lease has ended.
CREATE TABLE leases (
    name   TEXT    PRIMARY KEY,
    holder TEXT    NOT NULL,
    term   INTEGER NOT NULL,
    ends   REAL    NOT NULL
) STRICT;
