#include "inbox/statements.hpp"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include "inbox/claim_statements.hpp"
#include "inbox/outbox_statements.hpp"
#include "inbox/retry_statements.hpp"
#include "wire/identifier.hpp"

namespace turnstile::postgres {

namespace {

// "@." stands for the schema, "@history" for the number of the database's history (Fence::history), "@run" for kServerRun.

/// The number changes with each start of a server, and differs on each other server. A promoted replica has another
/// start time than its primary, and so has a restored copy. Every role may call it. It reads memory, and does not
/// depend on the session, so poolers do not change it. A recovery without another start (hazard: recovery-without-start)
/// keeps the number. What a fence protects has waited for the disk, and is not lost by it.
constexpr std::string_view kHistory =
    "pg_catalog.floor(extract(epoch FROM pg_catalog.pg_postmaster_start_time()) * 1000000)::bigint";

/// An array is written (SELECT $7::uuid[]). Otherwise PostgreSQL counts the elements of each one, takes a plan for so many
/// for cheaper than the plan that it could keep, and plans the statement anew each time: 0.16 ms of a transaction of three
/// messages, twice as long as it runs (measured).
/// $6 is the history as the time that it stands for: @history is computed with numeric, which every transaction would pay.
/// A row with NULL means that the fence is valid; the other rows are the new ids. Without any row the epoch is over, or
/// the database has another history.
/// FOR SHARE reads the row again after waiting for a claim. A read beside the lock would use the snapshot from before
/// it (hazard: stale-snapshot). The same statement sets the timeouts before it locks any row, because the lock's scan
/// waits for them. In a statement of their own they would cost a fifth of a transaction with one message. The tables
/// are locked before: their locks have the lock_timeout of the session (hazard: table-locks).
constexpr std::string_view kOwner = R"(
WITH timeouts AS MATERIALIZED (
  SELECT pg_catalog.set_config('lock_timeout', $1::text, true),
         pg_catalog.set_config('idle_in_transaction_session_timeout', $2::text, true)
), owner AS MATERIALIZED ()";
constexpr std::string_view kFenced = R"(
  SELECT 1 FROM @.fence
   WHERE (SELECT true FROM timeouts) AND slot = $4::integer AND epoch = $5::bigint
     AND pg_catalog.pg_postmaster_start_time() = $6::timestamptz FOR SHARE)";
/// The partitions of a shared transaction, in the order of slots, as a claim locks them. The epochs are few, and each row
/// is found by its slot, whatever the table's statistics say.
constexpr std::string_view kFencedShared = R"(
  SELECT f.slot FROM unnest((SELECT $4::bigint[]), (SELECT $5::bigint[])) AS g (slot, epoch)
   CROSS JOIN LATERAL (
     SELECT o.slot FROM @.fence o WHERE o.slot = g.slot::integer AND o.epoch = g.epoch FOR SHARE) AS f
   WHERE (SELECT true FROM timeouts) AND pg_catalog.pg_postmaster_start_time() = $6::timestamptz)";
/// Without a partition; it takes the same arguments.
constexpr std::string_view kFree = R"(
  SELECT 1 WHERE (SELECT true FROM timeouts) AND $5::bigint IS NULL AND $6::timestamptz IS NULL)";
constexpr std::string_view kTakeIn = R"(
), fresh AS (
  INSERT INTO @.inbox (handler, id, slot, record_offset, fingerprint))";

/// Of the transaction in progress, until kMany restores it.
constexpr std::string_view kLookUpByIndex = R"(
SELECT pg_catalog.set_config('turnstile.seqscan', pg_catalog.current_setting('enable_seqscan'), true),
       pg_catalog.set_config('enable_seqscan', 'off', true))";

/// ON CONFLICT inserts each row on trial, with a lock and a record in the log of its own: a sixth of the whole
/// transaction. So the ids are looked up, and those that are missing are inserted. If another transaction stores one of
/// them meanwhile, the statement fails with a unique violation. A plan from when the inbox was small could read all of it
/// for each id, so the index is prescribed while it is planned.
/// The ids are sorted, and a list is read in its order (hazard: insert-order).
constexpr std::string_view kMany = R"(
  SELECT $3::smallint, e.id, $4::integer, e.record_offset, e.fingerprint
    FROM (SELECT unnest((SELECT $7::uuid[])) AS id, unnest((SELECT $8::bigint[])) AS record_offset,
                 unnest((SELECT $9::bigint[])) AS fingerprint) AS e
   WHERE EXISTS (SELECT 1 FROM owner)
     AND (SELECT true FROM @.inbox i WHERE i.handler = $3::smallint AND i.id = e.id LIMIT 1) IS NULL
  RETURNING id
)
SELECT NULL::uuid FROM owner
 WHERE pg_catalog.set_config('enable_seqscan', pg_catalog.current_setting('turnstile.seqscan'), true) IS NOT NULL
UNION ALL SELECT id FROM fresh)";

/// Waits for other transactions that store the same ids. ORDER BY tells the planner that they are sorted.
constexpr std::string_view kManyContended = R"(
  SELECT $3::smallint, e.id, $4::integer, e.record_offset, e.fingerprint
    FROM unnest((SELECT $7::uuid[]), (SELECT $8::bigint[]), (SELECT $9::bigint[])) AS e (id, record_offset, fingerprint)
   WHERE EXISTS (SELECT 1 FROM owner) ORDER BY e.id)";

/// A batch of one message needs no arrays, no sorting and no parts, which are started and ended each time. If it inserts
/// nothing, the message is a duplicate, or the fence is not valid: kStillOwner tells.
constexpr std::string_view kOne = R"(
INSERT INTO @.inbox (handler, id, slot, record_offset, fingerprint)
SELECT $3::smallint, $7::uuid, $4::integer, $8::bigint, $9::bigint)";
constexpr std::string_view kOneFenced = R"(
  FROM @.fence
 WHERE (SELECT pg_catalog.set_config('lock_timeout', $1::text, true) IS NOT NULL
           AND pg_catalog.set_config('idle_in_transaction_session_timeout', $2::text, true) IS NOT NULL)
   AND slot = $4::integer AND epoch = $5::bigint AND pg_catalog.pg_postmaster_start_time() = $6::timestamptz FOR SHARE)";
constexpr std::string_view kOneFree = R"(
 WHERE (SELECT pg_catalog.set_config('lock_timeout', $1::text, true) IS NOT NULL
           AND pg_catalog.set_config('idle_in_transaction_session_timeout', $2::text, true) IS NOT NULL)
   AND $5::bigint IS NULL AND $6::timestamptz IS NULL)";
/// For a session that has the timeouts of its own (kOwnTimeouts). To set them for each transaction took an eighth of its work
/// (measured: 3.9 µs of 30).
constexpr std::string_view kOneOwnTimeouts = R"(
INSERT INTO @.inbox (handler, id, slot, record_offset, fingerprint)
SELECT $1::smallint, $5::uuid, $2::integer, $6::bigint, $7::bigint
  FROM @.fence
 WHERE slot = $2::integer AND epoch = $3::bigint AND pg_catalog.pg_postmaster_start_time() = $4::timestamptz FOR SHARE)";
constexpr std::string_view kOneAdmitted = R"(
    ON CONFLICT DO NOTHING)";
/// Outside a transaction. Without a row, a pooler stands between this client and the server's process, and the session is
/// other clients', too (hazard: pooled-session).
constexpr std::string_view kOwnTimeouts = R"(
SELECT pg_catalog.set_config('lock_timeout', $1::text, false),
       pg_catalog.set_config('idle_in_transaction_session_timeout', $2::text, false)
 WHERE pg_catalog.pg_backend_pid() = $3::integer)";
constexpr std::string_view kStillOwner = R"(
SELECT 1 FROM @.fence
 WHERE slot = $1::integer AND epoch = $2::bigint AND pg_catalog.pg_postmaster_start_time() = $3::timestamptz FOR SHARE)";

constexpr std::string_view kAdmitted = R"(
  ON CONFLICT DO NOTHING RETURNING id
)
SELECT NULL::uuid FROM owner UNION ALL SELECT id FROM fresh)";

/// Of a shared transaction: nothing is taken in unless each of its epochs lasts.
constexpr std::string_view kManyShared = R"(
  SELECT $3::smallint, e.id, e.slot::integer, e.record_offset, e.fingerprint
    FROM unnest((SELECT $7::uuid[]), (SELECT $8::bigint[]), (SELECT $9::bigint[]),
                (SELECT $10::bigint[])) AS e (id, record_offset, fingerprint, slot)
   WHERE (SELECT count(*) FROM owner) = cardinality($4::bigint[]) ORDER BY e.id)";
constexpr std::string_view kAdmittedShared = R"(
  ON CONFLICT DO NOTHING RETURNING id
)
SELECT NULL::uuid WHERE (SELECT count(*) FROM owner) = cardinality($4::bigint[]) UNION ALL SELECT id FROM fresh)";

/// Three statements in one round trip. The first waits for a concurrent insert of the row. The second waits for a
/// concurrent update, and then reads the row again. A single statement would decide by a snapshot from before it waited
/// (hazard: stale-snapshot).
constexpr std::string_view kAddProgress = R"(
), added AS (
  INSERT INTO @.progress (handler, slot, incarnation, next_offset)
  SELECT $3::smallint, $4::integer, $7::integer, 0 FROM owner ON CONFLICT DO NOTHING
)
SELECT 1 FROM owner)";

constexpr std::string_view kLockProgress = R"(
SELECT CASE incarnation WHEN $3::integer THEN next_offset ELSE 0 END FROM @.progress
 WHERE handler = $1::smallint AND slot = $2::integer FOR NO KEY UPDATE)";

constexpr std::string_view kMoveProgress = R"(
UPDATE @.progress SET next_offset = CASE incarnation WHEN $3::integer THEN greatest(next_offset, $4::bigint) ELSE $4::bigint END,
                      incarnation = $3::integer, moved_at = clock_timestamp()
 WHERE handler = $1::smallint AND slot = $2::integer)";

/// The stored windows of a batch's producers. The lock of the partition's progress protects them from other changes.
constexpr std::string_view kReadWindows = R"(
SELECT p.id, pg_catalog.floor(extract(epoch FROM p.expired_at) * 1000)::bigint, w.high, w.low, w.acked, w.seen
  FROM @.producer p LEFT JOIN @.producer_window w ON w.producer = p.id AND w.handler = $1::smallint AND w.slot = $2::integer
 WHERE p.id = ANY ($3::uuid[]))";

constexpr std::string_view kMoveWindows = R"(
INSERT INTO @.producer_window (handler, slot, producer, high, low, acked, seen)
SELECT $1::smallint, $2::integer, g.producer, g.high, g.low, g.acked, g.seen
  FROM unnest($3::uuid[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bytea[]) AS g (producer, high, low, acked, seen)
 ORDER BY g.producer
ON CONFLICT (producer, handler, slot) DO UPDATE
   SET high = excluded.high, low = excluded.low, acked = excluded.acked, seen = excluded.seen, moved_at = clock_timestamp())";

constexpr std::string_view kDropResponses = R"(
DELETE FROM @.producer_response r USING unnest($3::uuid[], $4::bigint[]) AS g (producer, forgotten)
 WHERE r.handler = $1::smallint AND r.slot = $2::integer AND r.producer = g.producer AND r.number <= g.forgotten)";

constexpr std::string_view kRespondRequest = R"(
INSERT INTO @.producer_response (handler, slot, producer, number, body)
VALUES ($1::smallint, $2::integer, $3::uuid, $4::bigint, $5::bytea))";

constexpr std::string_view kRequestResponses = R"(
SELECT r.producer, r.number, r.body FROM @.producer_response r
  JOIN unnest($3::uuid[], $4::bigint[]) AS g (producer, number) ON g.producer = r.producer AND g.number = r.number
 WHERE r.handler = $1::smallint AND r.slot = $2::integer)";

/// The random bits of two UUIDs: 244.
constexpr std::string_view kOpenProducer = R"(
INSERT INTO @.producer AS p (id, name, secret, expiry, keep_for)
VALUES (coalesce($1::uuid, gen_random_uuid()), $2::text, uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()),
        $3::bigint * interval '1 millisecond', $4::bigint * interval '1 second')
ON CONFLICT (id) DO UPDATE SET heartbeat_at = clock_timestamp(), expired_at = NULL RETURNING p.id, p.secret)";

constexpr std::string_view kProducerHeartbeat = R"(
UPDATE @.producer SET heartbeat_at = clock_timestamp()
 WHERE id = $1::uuid AND expired_at IS NULL)";

/// After a start of the server, producers get some time to find it again.
constexpr std::string_view kExpireProducers = R"(
WITH due AS MATERIALIZED (
  SELECT id FROM @.producer
   WHERE expired_at IS NULL AND heartbeat_at + expiry < clock_timestamp()
     AND pg_postmaster_start_time() + least(expiry, interval '30 seconds') < clock_timestamp()
   ORDER BY id LIMIT 1000 FOR UPDATE SKIP LOCKED
), marked AS (
  UPDATE @.producer p SET expired_at = clock_timestamp() FROM due WHERE p.id = due.id
), dropped AS (
  DELETE FROM @.producer_response r USING due WHERE r.producer = due.id
)
SELECT count(*) FROM due)";

constexpr std::string_view kForgetProducers = R"(
WITH due AS MATERIALIZED (
  SELECT id FROM @.producer WHERE expired_at + keep_for < clock_timestamp() ORDER BY id LIMIT 1000 FOR UPDATE SKIP LOCKED
), dropped AS (
  DELETE FROM @.producer_response r USING due WHERE r.producer = due.id
)
DELETE FROM @.producer p USING due WHERE p.id = due.id)";

/// In the caller's transaction, with the caller's timeouts.
constexpr std::string_view kJoin = R"(
INSERT INTO @.inbox (handler, id, slot, record_offset, fingerprint)
VALUES ($1::smallint, $2::uuid, 0, $3::bigint, $4::bigint) ON CONFLICT DO NOTHING)";

/// A caller that learns that an id is done does not ask again. With synchronous replication, a COMMIT whose wait was
/// cancelled, or whose session was terminated, is visible, but a replica may not have it. A record in the log makes this
/// statement wait until the replicas have all that precedes it; an xid alone does not.
constexpr std::string_view kFind = R"(
SELECT i.fingerprint, r.body,
       CASE WHEN pg_catalog.current_setting('synchronous_standby_names') <> ''
            THEN pg_catalog.pg_logical_emit_message(true, 'turnstile', ''::text) END
  FROM @.inbox i LEFT JOIN @.response r ON r.handler = i.handler AND r.id = i.id
 WHERE i.handler = $1::smallint AND i.id = $2::uuid)";

/// A response that outlived its id is overwritten.
constexpr std::string_view kRespond = R"(
INSERT INTO @.response (handler, id, body) VALUES ($1::smallint, $2::uuid, $3::bytea)
ON CONFLICT (handler, id) DO UPDATE SET body = excluded.body, replied_at = excluded.replied_at)";

/// No row: the epoch is over, or the database has another history. Nothing is read below $4. The watermark is not used
/// as that bound: if Kafka's offset is lower, messages below the watermark run again.
constexpr std::string_view kBlame = R"(
WITH owner AS MATERIALIZED (
  SELECT slot, incarnation FROM @.fence WHERE slot = $1::integer AND epoch = $2::bigint AND @history = $3::bigint FOR SHARE
), past AS (
  DELETE FROM @.suspect s USING owner o
   WHERE s.slot = o.slot AND (s.record_offset < $4::bigint OR s.incarnation <> o.incarnation)
), left_behind AS (
  DELETE FROM @.trial t USING owner o WHERE t.slot = o.slot AND t.epoch < $2::bigint
  RETURNING t.offsets, t.alone, t.epoch, t.incarnation
), overdue AS (
  DELETE FROM @.outlasting t USING owner o WHERE t.slot = o.slot AND t.epoch < $2::bigint AND t.ends_by < clock_timestamp()
  RETURNING t.offsets, t.alone, t.epoch, t.incarnation
), blamed AS (
  INSERT INTO @.suspect AS s (slot, record_offset, incarnation, deaths, epoch)
  SELECT o.slot, u.record_offset, o.incarnation, count(DISTINCT l.epoch) FILTER (WHERE l.alone),
         max(l.epoch) FILTER (WHERE l.alone)
    FROM owner o JOIN (SELECT * FROM left_behind UNION ALL SELECT * FROM overdue) l ON l.incarnation = o.incarnation
   CROSS JOIN LATERAL unnest(l.offsets) AS u (record_offset)
   WHERE u.record_offset >= $4::bigint
   GROUP BY o.slot, o.incarnation, u.record_offset ORDER BY u.record_offset
  ON CONFLICT (slot, record_offset) DO UPDATE
     SET deaths = s.deaths + excluded.deaths, epoch = coalesce(excluded.epoch, s.epoch), died_at = excluded.died_at
)
SELECT 1 FROM owner)";

/// A second statement, because it must see the changes of the one above.
constexpr std::string_view kSuspects = R"(
SELECT record_offset, deaths FROM @.suspect WHERE slot = $1::integer ORDER BY record_offset)";

constexpr std::string_view kBeginTrial = R"(
WITH owner AS MATERIALIZED (
  SELECT slot, incarnation FROM @.fence WHERE slot = $1::integer AND epoch = $2::bigint AND @history = $3::bigint FOR SHARE
), begun AS (
  INSERT INTO @.trial (slot, first_offset, offsets, alone, epoch, incarnation)
  SELECT slot, ($4::bigint[])[1], $4::bigint[], $5::boolean, $2::bigint, incarnation FROM owner
  ON CONFLICT (slot, first_offset) DO UPDATE
     SET offsets = excluded.offsets, alone = excluded.alone, epoch = excluded.epoch, incarnation = excluded.incarnation
)
SELECT 1 FROM owner)";

/// In another history the commit that settled these may be lost, and the epoch may belong to another owner. So the trial
/// stays, but not as one that ran alone: its process has outlived it, and its death must not count.
constexpr std::string_view kEndTrial = R"(
WITH ended AS (
  DELETE FROM @.trial
   WHERE slot = $1::integer AND first_offset = ($4::bigint[])[1] AND epoch = $2::bigint AND @history = $3::bigint
), outlived AS (
  UPDATE @.trial SET alone = false
   WHERE slot = $1::integer AND first_offset = ($4::bigint[])[1] AND epoch = $2::bigint AND @history <> $3::bigint
), settled AS (
  DELETE FROM @.suspect WHERE slot = $1::integer AND record_offset = ANY ($5::bigint[]) AND @history = $3::bigint
)
UPDATE @.suspect SET deaths = greatest(0, deaths - 1), epoch = NULL
 WHERE slot = $1::integer AND epoch = $2::bigint AND @history = $3::bigint
   AND record_offset = ANY ($4::bigint[]) AND record_offset <> ALL ($5::bigint[]))";

/// A second statement: if it waited for kGiveUp, it must see what kGiveUp has inserted. What is settled needs no other
/// owner's trial. In another history, too: the row has survived, and its owner lives.
constexpr std::string_view kEndOutlasting = R"(
DELETE FROM @.outlasting
 WHERE slot = $1::integer AND epoch <= $2::bigint
   AND (epoch = $2::bigint AND first_offset = ($4::bigint[])[1]
        OR @history = $3::bigint
           AND NOT EXISTS (SELECT FROM unnest(offsets) AS o (each) WHERE o.each <> ALL ($5::bigint[]))))";

/// $4: for how many milliseconds what is on trial may still run; NULL: it does not. What outlasts its ownership already
/// gets that time anew, also in another history, where its owner lives as well.
constexpr std::string_view kGiveUp = R"(
WITH given AS MATERIALIZED (
  SELECT g.slot, g.epoch, g.runs_ms, g.history = @history AS is_same
    FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[]) AS g (slot, epoch, history, runs_ms)
), outlasted AS (
  DELETE FROM @.outlasting t USING given g WHERE t.slot = g.slot AND t.epoch = g.epoch
  RETURNING t.slot, t.first_offset, t.epoch, t.offsets, t.alone, t.incarnation, g.runs_ms
), begun AS (
  DELETE FROM @.trial t USING given g WHERE t.slot = g.slot AND t.epoch = g.epoch AND g.is_same
  RETURNING t.slot, t.first_offset, t.epoch, t.offsets, t.alone, t.incarnation, g.runs_ms
)
INSERT INTO @.outlasting (slot, first_offset, epoch, offsets, alone, incarnation, ends_by)
SELECT slot, first_offset, epoch, offsets, alone, incarnation, clock_timestamp() + runs_ms * interval '1 millisecond'
  FROM (SELECT * FROM outlasted UNION ALL SELECT * FROM begun) runs WHERE runs_ms IS NOT NULL
    ON CONFLICT (slot, first_offset, epoch) DO NOTHING)";

constexpr std::string_view kRelease = R"(
WITH owned AS MATERIALIZED (
  SELECT f.slot FROM @.fence f
    JOIN unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS g (slot, epoch, history) ON f.slot = g.slot AND f.epoch = g.epoch
   WHERE g.history = @history ORDER BY f.slot FOR NO KEY UPDATE OF f
), past AS (
  DELETE FROM @.outlasting t USING owned o WHERE t.slot = o.slot
)
UPDATE @.fence f SET released_epoch = f.epoch FROM owned o WHERE f.slot = o.slot)";

/// Inserts only missing rows; otherwise each claim would use up numbers of the slots.
constexpr std::string_view kAddFences = R"(
INSERT INTO @.fence (consumer_group, topic, partition)
SELECT $1::text, t.topic, t.partition FROM unnest($2::text[], $3::bigint[]) AS t (topic, partition)
 WHERE NOT EXISTS (SELECT 1 FROM @.fence f
                    WHERE f.consumer_group = $1::text AND f.topic = t.topic AND f.partition = t.partition)
 ORDER BY t.topic, t.partition ON CONFLICT DO NOTHING)";

/// Locks in the order of slots, so that two members that claim the same partitions do not deadlock.
constexpr std::string_view kClaim = R"(
WITH locked AS MATERIALIZED (
  SELECT f.slot FROM @.fence f
    JOIN unnest($2::text[], $3::bigint[]) AS t (topic, partition) ON f.topic = t.topic AND f.partition = t.partition
   WHERE f.consumer_group = $1::text ORDER BY f.slot FOR NO KEY UPDATE OF f
)
UPDATE @.fence f SET epoch = f.epoch + 1, claimed_at = clock_timestamp() FROM locked WHERE f.slot = locked.slot)";

/// A claim waits for a transaction of the last owner, which may begin an incarnation. It cannot see the watermark that
/// this transaction commits (hazard: stale-snapshot). A second statement, run under the lock, can see it.
constexpr std::string_view kClaimed = R"(
SELECT f.topic, f.partition, f.slot, f.epoch, @history, f.incarnation,
       (SELECT w.watermark FROM @.watermark w WHERE w.slot = f.slot),
       (SELECT string_agg(p.handler || ' ' || p.next_offset, ' ') FROM @.progress p WHERE p.slot = f.slot AND p.incarnation = f.incarnation),
       (f.epoch = 1 OR f.epoch - 1 IS NOT DISTINCT FROM f.released_epoch)::integer,
       current_database() || '/' || (SELECT extract(epoch FROM min(m.applied_at))::text FROM @.migration m)
  FROM @.fence f JOIN unnest($2::text[], $3::bigint[]) AS t (topic, partition) ON f.topic = t.topic AND f.partition = t.partition
 WHERE f.consumer_group = $1::text)";

/// Locks the fences before it changes the watermarks, both in the order of slots. The epoch is read under the lock.
constexpr std::string_view kAdvance = R"(
WITH given AS (
  SELECT slot, epoch, max(watermark) AS watermark, max(known) AS known
    FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[]) AS g (slot, epoch, history, watermark, known)
   WHERE history = @history GROUP BY slot, epoch
), owned AS MATERIALIZED (
  SELECT f.slot, g.watermark, g.known FROM @.fence f JOIN given g ON g.slot = f.slot AND g.epoch = f.epoch
   ORDER BY f.slot FOR SHARE OF f
), looked_at AS MATERIALIZED (
  SELECT o.slot, o.watermark, o.known IS NOT NULL AND coalesce(w.watermark < o.known, true) AS is_behind
    FROM owned o LEFT JOIN @.watermark w ON w.slot = o.slot
), moved AS (
  INSERT INTO @.watermark AS w (slot, watermark) SELECT slot, watermark FROM looked_at WHERE NOT is_behind ORDER BY slot
  ON CONFLICT (slot) DO UPDATE SET watermark = excluded.watermark, moved_at = clock_timestamp()
   WHERE w.watermark < excluded.watermark
)
SELECT slot, is_behind::integer FROM looked_at)";

constexpr std::string_view kIncarnation = R"(
WITH counted AS (
  UPDATE @.fence SET incarnation = greatest(incarnation + 1, $5::integer)
   WHERE slot = $1::integer AND epoch = $2::bigint AND @history = $4::bigint
  RETURNING slot, incarnation
), moved AS (
  INSERT INTO @.watermark (slot, watermark) SELECT slot, $3::bigint FROM counted
  ON CONFLICT (slot) DO UPDATE SET watermark = excluded.watermark, moved_at = clock_timestamp()
)
SELECT incarnation FROM counted)";

/// No row: the epoch is over, or the database has another history.
constexpr std::string_view kRecordDead = R"(
WITH owner AS MATERIALIZED (
  SELECT slot, incarnation FROM @.fence WHERE slot = $2::integer AND epoch = $3::bigint AND @history = $17::bigint FOR SHARE
), buried AS (
  INSERT INTO @.dead (handler, slot, incarnation, record_offset, message_id, reason, error, attempts, record_timestamp,
                      record_key, record_payload, header_names, header_values, dead_topic, dead_partition, dead_offset)
  SELECT $1::smallint, slot, incarnation, $4::bigint, $5::uuid, $6::text, $7::text, $8::integer,
         timestamptz 'epoch' + $9::bigint * interval '1 millisecond',
         $10::bytea, $11::bytea, $12::bytea[], $13::bytea[], $14::text, $15::integer, $16::bigint
    FROM owner
  ON CONFLICT DO NOTHING RETURNING 1
), settled AS (
  DELETE FROM @.retry r USING owner
   WHERE r.id = $18::bigint AND r.attempts = $19::integer AND r.handler = $1::smallint AND r.message_id = $5::uuid
)
SELECT (SELECT count(*) FROM buried) FROM owner)";

constexpr std::string_view kDeadBetween = R"(
SELECT d.record_offset FROM @.dead d JOIN @.fence f ON f.slot = d.slot AND f.incarnation = d.incarnation
 WHERE d.handler = $1::smallint AND d.slot = $2::integer AND d.record_offset BETWEEN $3::bigint AND $4::bigint
   AND @history = $5::bigint AND ($6::text IS NULL OR d.reason = $6::text))";

/// max + 1 replaces a sequence, which would use up a number for each conflict, and there are few numbers. If a
/// concurrent transaction takes the same number, this is a conflict without a row: then look again.
constexpr std::string_view kRegisterHandler = R"(
INSERT INTO @.handler (id, name) SELECT coalesce(max(id), 0)::integer + 1, $1::text FROM @.handler
ON CONFLICT DO NOTHING RETURNING id)";

/// Without a row another group was first just now: then look again.
constexpr std::string_view kFirstGroup = R"(
WITH first AS (
  UPDATE @.handler SET consumer_group = $2::text WHERE id = $1::smallint AND consumer_group IS NULL RETURNING consumer_group
)
SELECT consumer_group FROM first
UNION ALL SELECT consumer_group FROM @.handler WHERE id = $1::smallint AND consumer_group IS NOT NULL)";

/// Rounded up: an id of the same millisecond may be deleted.
constexpr std::string_view kKeepIds = R"(
SELECT kept_s, pg_catalog.ceil(extract(epoch FROM all_since) * 1000)::bigint FROM @.keep_ids($1::smallint, $2::bigint))";

/// By the caller's own clock, and by the server time that it saw last (in microseconds, in UTC).
constexpr std::string_view kPurgeStep = R"(
SELECT deleted, pg_catalog.ceil(wait_s * 1000)::bigint, pg_catalog.floor(extract(epoch FROM now_at) * 1000000)::bigint,
       ahead_s, step_s, pg_catalog.to_char(held_until AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI')
  FROM @.purge_by_clock($1::integer, timestamptz 'epoch' + $2::bigint * interval '1 microsecond',
                        timestamptz 'epoch' + $3::bigint * interval '1 microsecond'))";

/// A pause of an operator that has ended by itself is left out. That of a circuit breaker stays until it is closed.
constexpr std::string_view kActivePauses = R"(
SELECT topic, partition::bigint, record_key, breaker_of, by_whom, why,
       pg_catalog.floor(extract(epoch FROM began_at) * 1000)::bigint, pg_catalog.floor(extract(epoch FROM until) * 1000)::bigint,
       greatest(0, pg_catalog.ceil(extract(epoch FROM until - clock_timestamp()) * 1000))::bigint
  FROM @.pause WHERE until IS NULL OR breaker_of <> '' OR until > clock_timestamp()
 ORDER BY topic COLLATE "C", partition NULLS FIRST, record_key NULLS FIRST, breaker_of COLLATE "C")";

constexpr std::string_view kBeginPause = R"(
INSERT INTO @.pause AS p (topic, partition, record_key, breaker_of, by_whom, why, until)
VALUES ($1::text, $2::integer, $3::bytea, $4::text, $5::text, $6::text, clock_timestamp() + $7::bigint * interval '1 millisecond')
ON CONFLICT (topic, coalesce(partition, -1), coalesce(pg_catalog.sha256(record_key), ''), breaker_of) DO UPDATE
   SET by_whom = excluded.by_whom, why = excluded.why, until = excluded.until,
       began_at = CASE WHEN p.until <= clock_timestamp() AND p.breaker_of = '' THEN excluded.began_at ELSE p.began_at END)";

/// One row for the pause. 0: it had ended by itself.
constexpr std::string_view kEndPause = R"(
DELETE FROM @.pause
 WHERE topic = $1::text AND partition IS NOT DISTINCT FROM $2::integer AND record_key IS NOT DISTINCT FROM $3::bytea
   AND breaker_of = $4::text
RETURNING (until IS NULL OR breaker_of <> '' OR until > clock_timestamp())::integer)";

class InSchema {
 public:
  explicit InSchema(const std::string& schema) : prefix_(quote_identifier(schema) + ".") {}
  std::string operator()(std::string_view text) const {
    const std::pair<std::string_view, std::string_view> marks[] = {
        {"@history", kHistory}, {"@run", kServerRun}, {"@.", prefix_}};
    std::string out;
    for (auto at = text.find('@'); at != std::string_view::npos; at = text.find('@')) {
      out.append(text.substr(0, at));
      text.remove_prefix(at);
      const auto* const mark = std::find_if(std::begin(marks), std::end(marks),
                                            [&](const auto& one) { return text.starts_with(one.first); });
      out.append(mark->second);
      text.remove_prefix(mark->first.size());
    }
    return out.append(text);
  }

 private:
  std::string prefix_;
};

}  // namespace

Statements::Statements(const std::string& schema) {
  const InSchema in(schema);
  begin = "BEGIN ISOLATION LEVEL READ COMMITTED";
  look_up_by_index = kLookUpByIndex;
  const auto admit = [&](std::string_view owner, std::string_view one) {
    const std::string take_in = in(kOwner) + in(owner) + in(kTakeIn);
    return Admit{.many = take_in + in(kMany),
                 .many_contended = take_in + in(kManyContended) + in(kAdmitted),
                 .one = in(kOne) + in(one) + in(kOneAdmitted)};
  };
  fenced = admit(kFenced, kOneFenced);
  free = admit(kFree, kOneFree);
  one_own_timeouts = in(kOneOwnTimeouts) + in(kOneAdmitted);
  own_timeouts = kOwnTimeouts;
  still_owner = in(kStillOwner);
  shared = in(kOwner) + in(kFencedShared) + in(kTakeIn) + in(kManyShared) + in(kAdmittedShared);
  add_progress = in(kOwner) + in(kFenced) + in(kAddProgress);
  lock_progress = in(kLockProgress);
  move_progress = in(kMoveProgress);
  read_windows = in(kReadWindows);
  move_windows = in(kMoveWindows);
  drop_responses = in(kDropResponses);
  respond_request = in(kRespondRequest);
  request_responses = in(kRequestResponses);
  join = in(kJoin);
  find = in(kFind);
  fingerprints = in(
      "SELECT id, fingerprint FROM @.inbox WHERE handler = $1::smallint AND id = ANY ($2::uuid[]) AND fingerprint IS NOT NULL");
  settled =
      in("SELECT id FROM @.inbox WHERE handler = $1::smallint AND id = ANY ($2::uuid[]) "
         "AND ($3::bigint IS NULL OR @history = $3::bigint)");
  respond = in(kRespond);
  responses = in("SELECT id, body FROM @.response WHERE handler = $1::smallint AND id = ANY ($2::uuid[])");
  publish = in(kPublish);
  publish_text = in(kPublishText);
  schedule = in(kSchedule);
  schedule_text = in(kScheduleText);
  const auto take_claims_of = [&](std::string_view owner) {
    const std::string take = in(kOwner) + in(owner);
    return TakeClaims{.any = take + in(kTakeClaims), .new_ones = take + in(kTakeNewClaims)};
  };
  take_claims = take_claims_of(kFenced);
  take_free_claims = take_claims_of(kFree);
  drop_done_claims = in(kDropDoneClaims);
  begin_claims = in(select_held("")) + in(kBeginClaims);
  end_claims = in(kEndClaims) + in(kEnded) + in(kWhichEnded);
  end_claims_contended = in(kEndClaims) + in(kEndedContended) + in(kWhichEnded);
  find_by_index = kFindByIndex;
  fail_claims = in(select_held("text")) + in(kFailClaims);
  give_claims_back = in(select_held("")) + in(kGiveClaimsBack);
  renew_claims = in(select_held("")) + in(kRenewClaims);
  drop_lapsed_claims = in(kDropLapsedClaims);
  count_claims = in(count_of_claims);
  blame = in(kBlame);
  suspects = in(kSuspects);
  begin_trial = in(kBeginTrial);
  end_trial = in(kEndTrial);
  end_outlasting = in(kEndOutlasting);
  give_up = in(kGiveUp);
  release = in(kRelease);
  active_pauses = in(kActivePauses);
  begin_pause = in(kBeginPause);
  drop_ended_pauses = in("DELETE FROM @.pause WHERE breaker_of = '' AND until < clock_timestamp()");
  end_pause = in(kEndPause);
  open_producer = in(kOpenProducer);
  producer_heartbeat = in(kProducerHeartbeat);
  producer_secrets = in("SELECT id, secret FROM @.producer WHERE id = ANY ($1::uuid[])");
  expire_producers = in(kExpireProducers);
  forget_producers = in(kForgetProducers);
  locked_retries = in(kLockedRetries);
  stored_retries = in(kStoredRetries);
  retry_keys = in(kRetryKeys);
  take_back_ids = in(kTakeBackIds);
  add_retries = in(kAddRetries);
  defer_retries = in(kDeferRetries);
  end_retries = in(kEndRetries);
  retries_to_send = in(kRetriesToSend);
  look_for_due_retries = in(kLookForDueRetries);
  retries_are_sent = in(kRetriesAreSent);
  refuse_retry = in(kRefuseRetry);
  keep_shards = in(kKeepShards);
  leave_shards = in("UPDATE @.outbox_relay SET owner = NULL WHERE owner = $1::text");
  waiting = in(kWaitingMessages);
  release_due = in(kReleaseDue);
  remove_sent = in(kRemoveSent);
  refuse =
      in("UPDATE @.outbox SET shard = -1, refused = $3::text WHERE shard = $1::smallint AND id = $2::bigint"
         " RETURNING id");
  lag = in(kLag);
  timeouts =
      "SELECT pg_catalog.set_config('lock_timeout', $1::text, true), "
      "pg_catalog.set_config('idle_in_transaction_session_timeout', $2::text, true)";
  history = in("SELECT @history");
  add_fences = in(kAddFences);
  claim = in(kClaim);
  claimed = in(kClaimed);
  advance = in(kAdvance);
  incarnation = in(kIncarnation);
  record_dead = in(kRecordDead);
  dead_between = in(kDeadBetween);
  find_handler = in("SELECT id FROM @.handler WHERE name = $1::text");
  register_handler = in(kRegisterHandler);
  first_group = in(kFirstGroup);
  keep_ids = in(kKeepIds);
  purge_step = in(kPurgeStep);
}

}  // namespace turnstile::postgres
