#include "statements.hpp"

#include "identifier.hpp"

namespace turnstile::postgres {

Statements::Statements(const std::string& schema) {
  const std::string s = quote_identifier(schema) + ".";

  // One row with NULL says that the fence holds; the other rows are the ids that are new. Without any row the epoch is
  // no longer ours. FOR SHARE reads the row anew after waiting for a claim; a read beside the lock would see the
  // snapshot from before it (trap 42). The ids come sorted, and ORDER BY says so to the planner too (trap 4).
  admit = "WITH owner AS MATERIALIZED (SELECT 1 FROM " + s +
          "fence WHERE slot = $2::integer AND epoch = $3::bigint FOR SHARE), "
          "fresh AS (INSERT INTO " +
          s +
          "inbox (handler, id, slot, record_offset, fingerprint) "
          "SELECT $1::smallint, e.id, $2::integer, e.record_offset, e.fingerprint "
          "FROM unnest($4::uuid[], $5::bigint[], $6::bigint[]) AS e (id, record_offset, fingerprint) "
          "WHERE EXISTS (SELECT 1 FROM owner) ORDER BY e.id ON CONFLICT DO NOTHING RETURNING id) "
          "SELECT NULL::uuid FROM owner UNION ALL SELECT id FROM fresh";
  fingerprints = "SELECT id, fingerprint FROM " + s +
                 "inbox WHERE handler = $1::smallint AND id = ANY ($2::uuid[]) AND fingerprint IS NOT NULL";
  settled = "SELECT id FROM " + s + "inbox WHERE handler = $1::smallint AND id = ANY ($2::uuid[])";

  // Only what is missing, or each claim would burn the slots' numbers.
  add_fences = "INSERT INTO " + s +
               "fence (consumer_group, topic, partition) "
               "SELECT $1::text, t.topic, t.partition FROM unnest($2::text[], $3::bigint[]) AS t (topic, partition) "
               "WHERE NOT EXISTS (SELECT 1 FROM " +
               s +
               "fence f WHERE f.consumer_group = $1::text AND f.topic = t.topic "
               "AND f.partition = t.partition) "
               "ORDER BY t.topic, t.partition ON CONFLICT DO NOTHING";
  // Locked in the order of slots, so that two members that claim the same partitions do not deadlock.
  claim =
      "WITH locked AS MATERIALIZED (SELECT f.slot FROM " + s +
      "fence f "
      "JOIN unnest($2::text[], $3::bigint[]) AS t (topic, partition) ON f.topic = t.topic AND f.partition = t.partition "
      "WHERE f.consumer_group = $1::text ORDER BY f.slot FOR NO KEY UPDATE OF f) "
      "UPDATE " +
      s +
      "fence f SET epoch = f.epoch + 1, claimed_at = clock_timestamp() "
      "FROM locked WHERE f.slot = locked.slot "
      "RETURNING f.topic, f.partition, f.slot, f.epoch, f.incarnation, "
      "(SELECT w.watermark FROM " +
      s + "watermark w WHERE w.slot = f.slot)";
  // The fences are locked before the watermarks are touched, both in the order of slots; the epoch is read under the lock.
  advance =
      "WITH given AS (SELECT slot, epoch, max(watermark) AS watermark "
      "FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS g (slot, epoch, watermark) GROUP BY slot, epoch), "
      "owned AS MATERIALIZED (SELECT f.slot, g.watermark FROM " +
      s +
      "fence f "
      "JOIN given g ON g.slot = f.slot AND g.epoch = f.epoch ORDER BY f.slot FOR SHARE OF f) "
      "INSERT INTO " +
      s +
      "watermark AS w (slot, watermark) SELECT slot, watermark FROM owned ORDER BY slot "
      "ON CONFLICT (slot) DO UPDATE SET watermark = excluded.watermark, moved_at = clock_timestamp() "
      "WHERE w.watermark < excluded.watermark";
  incarnation = "WITH counted AS (UPDATE " + s +
                "fence SET incarnation = incarnation + 1 "
                "WHERE slot = $1::integer AND epoch = $2::bigint RETURNING slot, incarnation), "
                "forgotten AS (DELETE FROM " +
                s +
                "watermark w USING counted c WHERE w.slot = c.slot) "
                "SELECT incarnation FROM counted";

  record_dead = "INSERT INTO " + s +
                "dead (handler, slot, incarnation, record_offset, message_id, reason, error, attempts, "
                "record_timestamp, record_key, record_payload, header_names, header_values, "
                "dead_topic, dead_partition, dead_offset) "
                "SELECT $1::smallint, f.slot, f.incarnation, $3::bigint, $4::uuid, $5::text, $6::text, $7::integer, "
                "timestamptz 'epoch' + $8::bigint * interval '1 millisecond', "
                "$9::bytea, $10::bytea, $11::bytea[], $12::bytea[], $13::text, $14::integer, $15::bigint "
                "FROM " +
                s + "fence f WHERE f.slot = $2::integer ON CONFLICT DO NOTHING";
  is_dead = "SELECT 1 FROM " + s + "dead d JOIN " + s +
            "fence f ON f.slot = d.slot AND f.incarnation = d.incarnation "
            "WHERE d.handler = $1::smallint AND d.slot = $2::integer AND d.record_offset = $3::bigint";

  find_handler = "SELECT id FROM " + s + "handler WHERE name = $1::text";
  // max + 1 instead of a sequence: a sequence burns a number for each conflict, and these are few. A rival that takes
  // the same number makes this a conflict, with no row; then look again.
  register_handler = "INSERT INTO " + s +
                     "handler (id, name) "
                     "SELECT coalesce(max(id), 0)::integer + 1, $1::text FROM " +
                     s + "handler ON CONFLICT DO NOTHING RETURNING id";
}

}  // namespace turnstile::postgres
