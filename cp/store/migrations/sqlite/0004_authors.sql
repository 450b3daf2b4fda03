-- Who made each change, and from where. Of changes of before nobody knows.

ALTER TABLE changes ADD COLUMN author TEXT NOT NULL DEFAULT '';
ALTER TABLE changes ADD COLUMN origin TEXT NOT NULL DEFAULT '';
