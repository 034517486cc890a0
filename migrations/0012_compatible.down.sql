-- Deletes the second ledger. Later migrations that are in it must be reverted first: `turnstile migrate down` does that.
DROP FUNCTION grant_to_consumers(text, text);
DROP TABLE compatible_migration;
