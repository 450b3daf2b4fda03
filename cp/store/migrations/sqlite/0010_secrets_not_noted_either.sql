-- compatible with: 4
-- As step 9, for secrets that are recognised since: names such as `x-psk` or `token_2`, addresses without a scheme,
-- comments in patches.

UPDATE secrets_at_rest SET plain = 3 WHERE plain = 0 AND EXISTS (SELECT 1 FROM changes);
