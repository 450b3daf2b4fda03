-- compatible with: 4
-- `plain` is 3 where earlier versions have noted no secret in plain text, but took some documents with secrets for ones
-- without. Whoever opens the file next judges each of its documents (`cp.store.encrypting.judge_plain_text`).

UPDATE secrets_at_rest SET plain = 3 WHERE plain = 0 AND EXISTS (SELECT 1 FROM changes);
