-- compatible with: 1
-- Writes with which a proxy comes or goes have a budget of their own. `registered` is the size of such a change and 0 for
-- all others. From here on `written` and `ordinal` grow with the other writes alone: their bytes, and their number.
-- `registrations_forgotten` is the revision up to which registrations may be missing in the middle of the log.

ALTER TABLE koguma.changes ADD COLUMN registered bigint NOT NULL DEFAULT 0;
ALTER TABLE koguma.changes ADD COLUMN ordinal bigint NOT NULL DEFAULT 0;
ALTER TABLE koguma.head ADD COLUMN ordinal bigint NOT NULL DEFAULT 0;
ALTER TABLE koguma.head ADD COLUMN registrations_forgotten bigint NOT NULL DEFAULT 0;

UPDATE koguma.changes SET ordinal = revision;
UPDATE koguma.head SET ordinal = revision;

CREATE INDEX registrations_of_a_mesh ON koguma.changes (mesh, revision, registered) WHERE registered > 0;
