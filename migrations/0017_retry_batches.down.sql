DROP TRIGGER retries_are_settled ON retry;
DROP FUNCTION retries_are_settled();
DROP FUNCTION lock_retries(smallint, bigint[], bigint[], uuid[]);
DROP FUNCTION stored_retries(smallint, uuid[]);
DROP FUNCTION keys_with_retries(smallint, bytea[]);
DROP FUNCTION take_back_ids(smallint, uuid[]);
DROP FUNCTION add_retries(smallint, uuid[], integer, integer, bigint[], bigint[], bigint[], boolean, bigint[], text, integer,
                          bytea[], bytea[], bytea[], bytea[], bigint[], bigint[], bytea[]);
DROP FUNCTION defer_retries(smallint, bigint[], bigint[], bigint[], bigint[], bytea[], bigint[]);
DROP FUNCTION end_retries(smallint, bigint[], bigint[]);
DROP FUNCTION release_retries(bigint[], bigint);
DROP FUNCTION lock_retry_keys(smallint, bytea[]);
-- As migration 0016 made it.
CREATE FUNCTION retry_is_settled() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
  PERFORM lock_retry_key(OLD.handler, OLD.record_key);
  UPDATE retry SET due_at = clock_timestamp()
   WHERE id = (SELECT min(r.id) FROM retry r
                WHERE r.handler = OLD.handler AND md5(r.record_key) = md5(OLD.record_key) AND r.in_order
                  AND r.record_key IS NOT NULL)
     AND due_at = 'infinity';
  RETURN NULL;
END $$;
DO $$
BEGIN
  EXECUTE format('ALTER FUNCTION retry_is_settled() SET search_path = %I, pg_temp', current_schema());
  REVOKE ALL ON FUNCTION retry_is_settled() FROM PUBLIC;
END $$;
CREATE TRIGGER retry_is_settled AFTER DELETE ON retry
  FOR EACH ROW WHEN (OLD.in_order AND OLD.record_key IS NOT NULL) EXECUTE FUNCTION retry_is_settled();
DELETE FROM compatible_migration WHERE number = 17;
