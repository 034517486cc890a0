#pragma once
// The statements of the outbox. "@." stands for the schema; see Statements.

#include <string_view>

namespace turnstile::postgres {

inline constexpr std::string_view kPublish = R"(
INSERT INTO @.outbox (shard, message_id, topic, record_key, record_payload, header_names, header_values)
VALUES ($1::smallint, $2::uuid, $3::text, $4::bytea, $5::bytea, $6::bytea[], $7::bytea[]))";

/// The same for sessions that cannot send arrays of bytes: headers as hexadecimal digits, a NULL value as '-'.
inline constexpr std::string_view kPublishText = R"(
INSERT INTO @.outbox (shard, message_id, topic, record_key, record_payload, header_names, header_values)
VALUES ($1::smallint, $2::uuid, $3::text, $4::bytea, $5::bytea,
        ARRAY(SELECT pg_catalog.decode(h, 'hex') FROM unnest($6::text[]) WITH ORDINALITY AS t (h, n) ORDER BY n),
        ARRAY(SELECT CASE WHEN h <> '-' THEN pg_catalog.decode(h, 'hex') END FROM unnest($7::text[]) WITH ORDINALITY AS t (h, n) ORDER BY n)))";

inline constexpr std::string_view kSchedule = R"(
INSERT INTO @.scheduled (shard, message_id, topic, record_key, record_payload, header_names, header_values, due_at)
VALUES ($1::smallint, $2::uuid, $3::text, $4::bytea, $5::bytea, $6::bytea[], $7::bytea[],
        timestamptz 'epoch' + $8::bigint * interval '1 millisecond'))";

inline constexpr std::string_view kScheduleText = R"(
INSERT INTO @.scheduled (shard, message_id, topic, record_key, record_payload, header_names, header_values, due_at)
VALUES ($1::smallint, $2::uuid, $3::text, $4::bytea, $5::bytea,
        ARRAY(SELECT pg_catalog.decode(h, 'hex') FROM unnest($6::text[]) WITH ORDINALITY AS t (h, n) ORDER BY n),
        ARRAY(SELECT CASE WHEN h <> '-' THEN pg_catalog.decode(h, 'hex') END FROM unnest($7::text[]) WITH ORDINALITY AS t (h, n) ORDER BY n),
        timestamptz 'epoch' + $8::bigint * interval '1 millisecond'))";

/// It does not wait for a relay that is about to take a shard, and has locked it. A lease of more than twice the time is
/// of a clock that was set back since.
inline constexpr std::string_view kKeepShards = R"(
UPDATE @.outbox_relay r
   SET owner = $1::text, expires_at = clock_timestamp() + $2::bigint * interval '1 millisecond',
       fence = r.fence + (r.owner IS DISTINCT FROM $1::text)::integer
 WHERE r.shard IN (SELECT f.shard FROM @.outbox_relay f
                    WHERE f.owner IS NULL OR f.owner = $1::text OR f.expires_at < clock_timestamp()
                       OR f.expires_at > clock_timestamp() + 2 * $2::bigint * interval '1 millisecond'
                      FOR UPDATE SKIP LOCKED)
RETURNING r.shard::bigint)";

/// Each shard returns its part, so that a full shard cannot starve another one. The sum is that of the records before a
/// record, so the first is always returned. Lengths are read without the values. Headers count as stored, perhaps
/// compressed: unpacking them costs more than the exact size is worth.
inline constexpr std::string_view kWaitingMessages = R"(
SELECT o.shard::bigint, o.id, o.message_id, o.topic, o.record_key, o.record_payload, o.header_names, o.header_values
  FROM unnest($1::bigint[]) AS s (shard)
 CROSS JOIN LATERAL (
   SELECT w.*, sum(w.bytes) OVER (ORDER BY w.id) - w.bytes AS before
     FROM (SELECT *, coalesce(length(record_key), 0) + coalesce(length(record_payload), 0)
                       + pg_column_size(header_names) + pg_column_size(header_values) AS bytes
             FROM @.outbox WHERE shard = s.shard::smallint ORDER BY id LIMIT $2::bigint) w) o
 WHERE o.before < $3::bigint)";

/// It locks the rows in their order, and waits for a relay that has lost its shards and moves them now. Afterwards they
/// are gone. The time is that of the statement, because an index cannot be compared with a clock that runs.
/// A time may be infinite if a program has inserted the row: the next time is therefore bounded before it is subtracted.
inline constexpr std::string_view kReleaseDue = R"(
WITH due AS MATERIALIZED (
  SELECT * FROM @.scheduled WHERE shard = ANY ($1::bigint[]) AND due_at <= statement_timestamp()
   ORDER BY due_at, id LIMIT $2::bigint FOR UPDATE
), gone AS (
  DELETE FROM @.scheduled s USING due WHERE s.id = due.id
), moved AS (
  INSERT INTO @.outbox (shard, message_id, topic, record_key, record_payload, header_names, header_values)
  SELECT shard, message_id, topic, record_key, record_payload, header_names, header_values FROM due ORDER BY due_at, id
  RETURNING 1
)
SELECT (SELECT count(*) FROM moved),
       (SELECT ceil(extract(epoch FROM least(greatest(s.due_at, statement_timestamp()),
                                             statement_timestamp() + interval '1 year') - statement_timestamp()) * 1000)::bigint
          FROM @.scheduled s ORDER BY s.due_at LIMIT 1))";

inline constexpr std::string_view kRemoveSent = R"(
DELETE FROM @.outbox o USING unnest($1::bigint[], $2::bigint[]) AS d (shard, id)
 WHERE o.shard = d.shard::smallint AND o.id = d.id)";

// The limit of retries is ports::kMostRetriesCounted.
inline constexpr std::string_view kLag = R"(
SELECT count(*) FILTER (WHERE shard >= 0),
       coalesce(extract(epoch FROM clock_timestamp() - min(written_at) FILTER (WHERE shard >= 0)) * 1000, 0)::bigint,
       count(*) FILTER (WHERE shard = -1), (SELECT count(*) FROM @.scheduled),
       (SELECT count(*) FROM (SELECT FROM @.retry LIMIT 100000) AS r) FROM @.outbox)";

}  // namespace turnstile::postgres
