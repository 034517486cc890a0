#pragma once
// The statements of stored retries. "@." stands for the schema; see Statements.

#include <string_view>

namespace turnstile::postgres {

/// The rows for which records came back. They stay locked, so that no operator drops a message whose handler runs.
inline constexpr std::string_view kLockedRetries = R"(
SELECT r.id, r.attempts::bigint, r.message_id FROM @.retry r
 WHERE r.id = ANY ($2::bigint[]) AND r.handler = $1::smallint AND r.sent_at IS NOT NULL
 ORDER BY r.id FOR UPDATE)";

/// The places of the keys that have rows, from 1.
inline constexpr std::string_view kRetryKeys = R"(
SELECT k.place FROM unnest($2::bytea[]) WITH ORDINALITY AS k (key, place)
 WHERE EXISTS (SELECT FROM @.retry r
                WHERE r.handler = $1::smallint AND md5(r.record_key) = md5(k.key) AND r.record_key = k.key AND r.in_order))";

/// The caller has locked the key, if it is in order. A row behind another row of its key is due when that one is gone.
inline constexpr std::string_view kAddRetry = R"(
INSERT INTO @.retry (handler, message_id, slot, incarnation, record_offset, attempts, due_at, in_order, shard, topic,
                     partition, record_key, record_payload, header_names, header_values, record_timestamp, error)
SELECT $1::smallint, $2::uuid, $3::integer, $4::integer, $5::bigint, $6::integer,
       CASE WHEN $8::boolean AND $12::bytea IS NOT NULL
             AND EXISTS (SELECT FROM @.retry r WHERE r.handler = $1::smallint AND md5(r.record_key) = md5($12::bytea)
                            AND r.record_key IS NOT NULL AND r.in_order)
            THEN timestamptz 'infinity' ELSE clock_timestamp() + $7::bigint * interval '1 millisecond' END,
       $8::boolean, $9::smallint, $10::text, $11::integer, $12::bytea, $13::bytea, $14::bytea[], $15::bytea[],
       timestamptz 'epoch' + $16::bigint * interval '1 millisecond', $17::text
ON CONFLICT (handler, message_id) DO NOTHING)";

inline constexpr std::string_view kDeferAgain = R"(
UPDATE @.retry SET attempts = $4::integer, sent_at = NULL, error = $6::text,
                   due_at = clock_timestamp() + $5::bigint * interval '1 millisecond'
 WHERE id = $2::bigint AND attempts = $3::integer AND handler = $1::smallint AND sent_at IS NOT NULL)";

inline constexpr std::string_view kEndRetry = R"(
DELETE FROM @.retry WHERE id = $2::bigint AND attempts = $3::integer AND handler = $1::smallint AND sent_at IS NOT NULL)";

/// As kReleaseDue. chr(64) is "@", which would stand for the schema. The headers name the handler that must run the record, and the row that must still expect it.
inline constexpr std::string_view kReleaseRetries = R"(
WITH due AS MATERIALIZED (
  SELECT * FROM @.retry
   WHERE shard = ANY ($1::bigint[]) AND sent_at IS NULL AND due_at <= statement_timestamp()
   ORDER BY due_at, id LIMIT $2::bigint FOR UPDATE
), sent AS (
  UPDATE @.retry r SET sent_at = clock_timestamp() FROM due WHERE r.id = due.id
), moved AS (
  INSERT INTO @.outbox (shard, message_id, topic, record_key, record_payload, header_names, header_values)
  SELECT d.shard, d.message_id, d.topic, d.record_key, d.record_payload,
         d.header_names || ARRAY['turnstile-replayed-from'::bytea, 'turnstile-replayed-for', 'turnstile-retry'],
         d.header_values || ARRAY[convert_to(d.topic || '[' || d.partition || ']' || chr(64) || d.record_offset, 'UTF8'),
                                  convert_to(h.name, 'UTF8'), convert_to(d.id || '.' || d.attempts, 'UTF8')]
    FROM due d JOIN @.handler h ON h.id = d.handler ORDER BY d.due_at, d.id
  RETURNING 1
)
SELECT (SELECT count(*) FROM moved),
       (SELECT greatest(ceil(extract(epoch FROM r.due_at - statement_timestamp()) * 1000), 0)::bigint
          FROM @.retry r WHERE r.sent_at IS NULL AND r.due_at < 'infinity' ORDER BY r.due_at LIMIT 1))";

}  // namespace turnstile::postgres
