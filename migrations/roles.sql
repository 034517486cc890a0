-- The smallest set of rights for a consumer. Run as the owner of the schema:
--
--   psql -v ON_ERROR_STOP=1 -v schema=turnstile -v role=app -f migrations/roles.sql
--
-- The role must exist. With these rights it cannot change the definition of a table. It cannot delete an id, a dead
-- letter or an effect, except ids that are older than every declared duration. `turnstile dlq replay`, `dlq edit`,
-- `dlq purge`, `retries drop`, `rewind`, `inbox forget`, `inbox unpark --done` and `inbox purge` need the owner. This file has no rights on the application's own tables.
GRANT USAGE ON SCHEMA :"schema" TO :"role";
GRANT SELECT ON :"schema".migration TO :"role";
GRANT SELECT ON :"schema".compatible_migration TO :"role";
GRANT SELECT, INSERT, UPDATE (consumer_group) ON :"schema".handler TO :"role";
GRANT SELECT, INSERT, UPDATE (epoch, incarnation, claimed_at, released_epoch) ON :"schema".fence TO :"role";
GRANT SELECT, INSERT, UPDATE (watermark, moved_at) ON :"schema".watermark TO :"role";
GRANT SELECT, INSERT ON :"schema".inbox TO :"role";
GRANT SELECT, INSERT ON :"schema".dead TO :"role";
GRANT SELECT ON :"schema".dead_edit TO :"role";
-- Without `ordered`: a program cannot undo an operator's limit.
GRANT SELECT, INSERT (name, configured, declared), UPDATE (configured, declared, version, changed_at) ON :"schema".limiter TO :"role";
-- DELETE: for processes that have ended.
GRANT SELECT, INSERT, UPDATE (expires_at), DELETE ON :"schema".limiter_process TO :"role";
GRANT SELECT, INSERT, UPDATE (configured) ON :"schema".limiter_value TO :"role";
GRANT SELECT, INSERT, UPDATE (generation, holder, granted_at, expires_at) ON :"schema".permit TO :"role";
-- DELETE: for waits that have ended.
GRANT SELECT, INSERT, UPDATE (waiting, since, expires_at), DELETE ON :"schema".permit_wait TO :"role";
-- UPDATE: a consumer overwrites a response that outlived its id.
GRANT SELECT, INSERT, UPDATE (body, replied_at) ON :"schema".response TO :"role";
-- DELETE: for messages that were sent. UPDATE: for messages that the broker refuses.
GRANT SELECT, INSERT, UPDATE (shard, refused), DELETE ON :"schema".outbox TO :"role";
-- UPDATE: FOR UPDATE needs it. DELETE: for messages that are due, and go to the outbox.
GRANT SELECT, INSERT, UPDATE (due_at), DELETE ON :"schema".scheduled TO :"role";
-- DELETE: for messages that are settled. The function removes only ids that the same transaction has added.
GRANT SELECT, INSERT, UPDATE (attempts, due_at, error), DELETE ON :"schema".retry TO :"role";
-- UPDATE: FOR UPDATE needs it.
GRANT SELECT, INSERT, UPDATE (shard), DELETE ON :"schema".retry_due TO :"role";
GRANT SELECT, UPDATE (next_at, next_id, began_at, before_at) ON :"schema".retry_sweep TO :"role";
GRANT SELECT ON :"schema".retry_record TO :"role";
GRANT EXECUTE ON FUNCTION :"schema".lock_retry_key(smallint, bytea) TO :"role";
GRANT EXECUTE ON FUNCTION :"schema".take_back_id(smallint, uuid) TO :"role";
GRANT EXECUTE ON FUNCTION :"schema".take_back_ids(smallint, uuid[]) TO :"role";
GRANT EXECUTE ON FUNCTION :"schema".lock_retries(smallint, bigint[], bigint[], uuid[]) TO :"role";
GRANT EXECUTE ON FUNCTION :"schema".send_lost_retries() TO :"role";
GRANT EXECUTE ON FUNCTION :"schema".stored_retries(smallint, uuid[]) TO :"role";
GRANT EXECUTE ON FUNCTION :"schema".keys_with_retries(smallint, bytea[]) TO :"role";
GRANT EXECUTE ON FUNCTION :"schema".lock_retry_keys(smallint, bytea[]) TO :"role";
GRANT EXECUTE ON FUNCTION :"schema".add_retries(smallint, uuid[], integer, integer, bigint[], bigint[], bigint[], boolean, bigint[], text, integer, bytea[], bytea[], bytea[], bytea[], bigint[], bigint[], bytea[]) TO :"role";
GRANT EXECUTE ON FUNCTION :"schema".defer_retries(smallint, bigint[], bigint[], bigint[], bigint[], bytea[], bigint[]) TO :"role";
GRANT EXECUTE ON FUNCTION :"schema".end_retries(smallint, bigint[], bigint[]) TO :"role";
GRANT EXECUTE ON FUNCTION :"schema".due_retries(bigint[], bigint, bigint) TO :"role";
GRANT EXECUTE ON FUNCTION :"schema".retries_to_send(bigint[], bigint, bigint) TO :"role";
GRANT EXECUTE ON FUNCTION :"schema".messages_behind(smallint, bytea[]) TO :"role";
GRANT EXECUTE ON FUNCTION :"schema".look_for_due_retries(bigint[], bigint) TO :"role";
GRANT EXECUTE ON FUNCTION :"schema".retries_are_sent(bigint[], bigint[]) TO :"role";
GRANT EXECUTE ON FUNCTION :"schema".refuse_retry(bigint, bigint, text) TO :"role";
GRANT SELECT, UPDATE (owner, fence, expires_at) ON :"schema".outbox_relay TO :"role";
-- The purge: the functions decide which ids are old enough to delete, not their callers.
GRANT SELECT ON :"schema".kept TO :"role";
GRANT SELECT ON :"schema".sweep TO :"role";
GRANT EXECUTE ON FUNCTION :"schema".keep_ids(smallint, bigint) TO :"role";
GRANT EXECUTE ON FUNCTION :"schema".purge_step(integer) TO :"role";
GRANT EXECUTE ON FUNCTION :"schema".purge_by_clock(integer, timestamptz, timestamptz) TO :"role";
GRANT EXECUTE ON FUNCTION :"schema".look_at_clock(timestamptz, timestamptz) TO :"role";
-- DELETE: for tokens that expired long ago. A deleted token cannot be redeemed.
GRANT SELECT, INSERT, UPDATE (redeemed_at), DELETE ON :"schema".one_time_token TO :"role";
-- DELETE: for claims that are done or were given back. UPDATE: for leases, and for messages that are claimed again.
GRANT SELECT, INSERT, UPDATE (state, owner, fence, expires_at, slot, record_offset, fingerprint, error, claimed_at,
                             unbegun_by, unbegun_in), DELETE
  ON :"schema".claim TO :"role";
GRANT SELECT, INSERT, UPDATE (incarnation, next_offset, moved_at) ON :"schema".progress TO :"role";
-- DELETE: for producer sessions that expired long ago, and for responses that no producer will request.
GRANT SELECT, INSERT, UPDATE (heartbeat_at, expired_at), DELETE ON :"schema".producer TO :"role";
GRANT SELECT, INSERT, UPDATE (high, low, acked, seen, moved_at) ON :"schema".producer_window TO :"role";
GRANT SELECT, INSERT, DELETE ON :"schema".producer_response TO :"role";
-- DELETE: for trials that have ended, and for suspects that are settled.
GRANT SELECT, INSERT, UPDATE (offsets, alone, epoch, incarnation), DELETE ON :"schema".trial TO :"role";
GRANT SELECT, INSERT, UPDATE (incarnation, deaths, epoch, died_at), DELETE ON :"schema".suspect TO :"role";
GRANT SELECT, INSERT, DELETE ON :"schema".outlasting TO :"role";
-- All of it: circuit breakers of consumers pause topics. An operator with this role can pause and resume.
GRANT SELECT, INSERT, UPDATE (by_whom, why, began_at, until), DELETE ON :"schema".pause TO :"role";
