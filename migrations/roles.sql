-- The least rights with which a consumer runs. As the owner of the schema:
--
--   psql -v ON_ERROR_STOP=1 -v schema=turnstile -v role=app -f migrations/roles.sql
--
-- The role must exist. It can neither change the tables nor take an id, a dead letter or an effect back, but for ids that are
-- older than anybody needs them; `turnstile dlq replay`, `inbox forget`, `inbox unpark --done` and `inbox purge` are for the owner. Rights on the
-- application's own tables are the application's matter.
GRANT USAGE ON SCHEMA :"schema" TO :"role";
GRANT SELECT ON :"schema".migration TO :"role";
GRANT SELECT, INSERT, UPDATE (consumer_group) ON :"schema".handler TO :"role";
GRANT SELECT, INSERT, UPDATE (epoch, incarnation, claimed_at, released_epoch) ON :"schema".fence TO :"role";
GRANT SELECT, INSERT, UPDATE (watermark, moved_at) ON :"schema".watermark TO :"role";
GRANT SELECT, INSERT ON :"schema".inbox TO :"role";
GRANT SELECT, INSERT ON :"schema".dead TO :"role";
-- Not `ordered`: what an operator says, a program cannot undo.
GRANT SELECT, INSERT (name, configured), UPDATE (configured, version, changed_at) ON :"schema".limiter TO :"role";
GRANT SELECT, INSERT, UPDATE (generation, holder, granted_at, expires_at) ON :"schema".permit TO :"role";
-- DELETE: who waits no more.
GRANT SELECT, INSERT, UPDATE (waiting, since, expires_at), DELETE ON :"schema".permit_wait TO :"role";
-- UPDATE: a response that outlived its id is written over.
GRANT SELECT, INSERT, UPDATE (body, replied_at) ON :"schema".response TO :"role";
-- DELETE: what was sent. UPDATE: what the broker refuses is put aside.
GRANT SELECT, INSERT, UPDATE (shard, refused), DELETE ON :"schema".outbox TO :"role";
GRANT SELECT, UPDATE (owner, fence, expires_at) ON :"schema".outbox_relay TO :"role";
-- What old ids are, the functions know, and not who calls them.
GRANT SELECT ON :"schema".kept TO :"role";
GRANT SELECT ON :"schema".sweep TO :"role";
GRANT EXECUTE ON FUNCTION :"schema".keep_ids(smallint, bigint) TO :"role";
GRANT EXECUTE ON FUNCTION :"schema".purge_step(integer) TO :"role";
GRANT EXECUTE ON FUNCTION :"schema".purge_by_clock(integer, timestamptz, timestamptz) TO :"role";
GRANT EXECUTE ON FUNCTION :"schema".look_at_clock(timestamptz, timestamptz) TO :"role";
-- DELETE: tokens whose time is long over; one that is gone cannot be redeemed.
GRANT SELECT, INSERT, UPDATE (redeemed_at), DELETE ON :"schema".one_time_token TO :"role";
-- DELETE: what is done, or was given back. UPDATE: leases, and what is claimed again.
GRANT SELECT, INSERT, UPDATE (state, owner, fence, expires_at, slot, record_offset, fingerprint, error, claimed_at, unbegun_by, unbegun_in), DELETE
  ON :"schema".claim TO :"role";
GRANT SELECT, INSERT, UPDATE (incarnation, next_offset, moved_at) ON :"schema".progress TO :"role";
-- DELETE: producers that have long been silent, and responses that nobody will ask for.
GRANT SELECT, INSERT, UPDATE (heartbeat_at, expired_at), DELETE ON :"schema".producer TO :"role";
GRANT SELECT, INSERT, UPDATE (high, low, acked, seen, moved_at) ON :"schema".producer_window TO :"role";
GRANT SELECT, INSERT, DELETE ON :"schema".producer_response TO :"role";
-- DELETE: what has ended, and what is settled.
GRANT SELECT, INSERT, UPDATE (offsets, alone, epoch, incarnation), DELETE ON :"schema".trial TO :"role";
GRANT SELECT, INSERT, UPDATE (incarnation, deaths, epoch, died_at), DELETE ON :"schema".suspect TO :"role";
