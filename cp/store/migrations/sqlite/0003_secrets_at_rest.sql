-- What is known of secrets in this file, in one row. `plain`: 0 if none was ever written in plain text, 1 if one was and
-- may still be in the log or in unused parts of the file, 2 if an earlier version wrote here, which did not note it.
-- `encryptions` counts how often all of them were encrypted anew, which makes no revision.

CREATE TABLE secrets_at_rest (
    plain       INTEGER NOT NULL,
    encryptions INTEGER NOT NULL
) STRICT;

INSERT INTO secrets_at_rest VALUES (2 * EXISTS (SELECT 1 FROM changes), 0);
