-- compatible with: 4
-- With which earlier step one still understands what each step left: `compatible_with` is the number of that step.

CREATE TABLE migrations (
    number          INTEGER PRIMARY KEY,
    compatible_with INTEGER NOT NULL
) STRICT;

INSERT INTO migrations VALUES (1, 1), (2, 2), (3, 3), (4, 4);
