-- How many bytes of changes were written up to and with each, so that the log can be kept to a size: what is to go is
-- found by an index, however long the log is.

ALTER TABLE changes ADD COLUMN written INTEGER NOT NULL DEFAULT 0;

UPDATE changes SET written = summed.written
FROM (
    SELECT revision, position, sum(
        ifnull(length(before), 0) + ifnull(length(before_source), 0)
        + ifnull(length(after), 0) + ifnull(length(after_source), 0)
    ) OVER (ORDER BY revision, position) AS written
    FROM changes
) AS summed
WHERE changes.revision = summed.revision AND changes.position = summed.position;

CREATE INDEX bytes_written ON changes (written);
