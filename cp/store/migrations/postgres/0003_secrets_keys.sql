-- compatible with: 1
-- The keys with which control planes have begun to encrypt secrets, by their fingerprints: who has none of them would
-- not see what the others write, and overwrite it.

CREATE TABLE koguma.secrets_keys (
    fingerprint text        PRIMARY KEY,
    id          text        NOT NULL,
    since       timestamptz NOT NULL DEFAULT now()
);
