-- compatible with: 4
-- Writes with which a proxy comes or goes have a budget of their own. `registered` is the size of such a change and 0 for
-- all others. From here on `written` and `ordinal` grow with the other writes alone: their bytes, and their number.
-- `registrations_forgotten` has the revision up to which registrations may be missing in the middle of the log.

ALTER TABLE changes ADD COLUMN registered INTEGER NOT NULL DEFAULT 0;
ALTER TABLE changes ADD COLUMN ordinal INTEGER NOT NULL DEFAULT 0;

UPDATE changes SET ordinal = revision;

CREATE INDEX registrations_of_a_mesh ON changes (mesh, revision, registered) WHERE registered > 0;

CREATE TABLE registrations_forgotten (
    revision INTEGER NOT NULL
) STRICT;

INSERT INTO registrations_forgotten VALUES (0);
