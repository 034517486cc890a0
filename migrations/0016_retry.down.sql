-- Refused while messages wait for a retry: their offsets are committed, so they exist only here. Wait until
-- `turnstile retries list` is empty, or drop them with `turnstile retries drop`.
DO $$
BEGIN
  IF EXISTS (SELECT FROM retry) THEN
    RAISE EXCEPTION '% messages wait for a retry and exist only in this table', (SELECT count(*) FROM retry)
      USING HINT = 'Run turnstile retries list. Wait until it is empty, or run turnstile retries drop --all.';
  END IF;
END $$;
DROP TABLE retry;
DROP FUNCTION retry_is_settled();
DROP FUNCTION lock_retry_key(smallint, bytea);
DROP FUNCTION take_back_id(smallint, uuid);
DELETE FROM compatible_migration WHERE number = 16;
