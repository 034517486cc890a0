#pragma once
// The statements of claims. "@." stands for the schema, "@run" for the server's run; see Statements.

#include <string>
#include <string_view>

namespace turnstile::postgres {

/// The server's run: another value after each event by which it may have lost a commit that did not wait for the disk.
/// It is the start time, and 1 microsecond more for each byte of the log up to the end of its last recovery. If one of
/// its processes was killed, a server recovers without another start. Each recovery ends further on than a row that it
/// restores was written (hazard: recovery-without-start). A server that was shut down has lost nothing, and has no
/// recovery. It reads memory; every role may call it. In a SELECT of its own it is computed once for a statement.
inline constexpr std::string_view kServerRun =
    "(SELECT pg_catalog.pg_postmaster_start_time() + "
    "coalesce(pg_catalog.pg_last_wal_replay_lsn() - '0/0'::pg_catalog.pg_lsn, 0) * interval '1 microsecond')";

/// A condition on a claim whose lease has ended: its handler had not begun, so the next consumer runs the message.
inline const std::string not_begun =
    "coalesce(unbegun_by = owner AND unbegun_in = " + std::string(kServerRun) + ", false)";

/// For the rest of the transaction. A plan from when the inbox was small could read all of it for each id. A session keeps
/// its plans, so single messages set this, too.
inline constexpr std::string_view kFindByIndex =
    "SELECT pg_catalog.set_config('enable_seqscan', 'off', true), pg_catalog.set_config('enable_bitmapscan', 'off', true)";

/// A row with NULL means that the fence is valid. Each other row is a message. Either this call claimed it (with its
/// fence) or parked it just now, or another owner has it, as it was when the statement began. A message without a row
/// was claimed by another owner in the meantime.
/// $10 are the owners of this call and of calls whose answer was lost, so that nothing ran under them. The database may
/// have lost a row of a message in doubt, or what its row became: a message that had failed may have taken effect since.
/// It is parked, unless the next statement finds its id in the inbox.
inline constexpr std::string_view kTakeClaims = R"(
), given AS MATERIALIZED (
  SELECT * FROM unnest($7::uuid[], $8::bigint[], $9::bigint[], $13::bigint[]) AS e (id, record_offset, fingerprint, in_doubt)
), taken AS (
  INSERT INTO @.claim AS c (handler, id, owner, slot, record_offset, fingerprint, expires_at, state, unbegun_by, unbegun_in)
  SELECT $3::smallint, e.id, ($10::uuid[])[1], $4::integer, e.record_offset, e.fingerprint,
         clock_timestamp() + $11::bigint * interval '1 millisecond',
         CASE WHEN e.in_doubt = 1 AND NOT $12::boolean THEN 'parked' ELSE 'claimed' END,
         CASE WHEN NOT $14::boolean THEN ($10::uuid[])[1] END, @run
    FROM given e WHERE EXISTS (SELECT 1 FROM owner) ORDER BY e.id
  ON CONFLICT (handler, id) DO UPDATE
     SET state = CASE WHEN excluded.state = 'parked' THEN 'parked'
                      WHEN c.state = 'failed' OR c.owner = ANY ($10::uuid[]) OR $12::boolean
                        OR (c.unbegun_by = c.owner AND c.unbegun_in = @run)
                      THEN 'claimed' ELSE 'parked' END,
         owner = excluded.owner, fence = c.fence + 1, expires_at = excluded.expires_at, slot = excluded.slot,
         record_offset = excluded.record_offset, fingerprint = coalesce(excluded.fingerprint, c.fingerprint), error = NULL,
         claimed_at = excluded.claimed_at, unbegun_by = excluded.unbegun_by, unbegun_in = excluded.unbegun_in
   WHERE c.state = 'failed' OR (c.state = 'claimed' AND (c.owner = ANY ($10::uuid[]) OR c.expires_at < clock_timestamp()))
  RETURNING id, state, fence
)
SELECT NULL::uuid, NULL::text, NULL::bigint, NULL::bigint, NULL::bigint, NULL::boolean FROM owner
UNION ALL SELECT id, state, fence, NULL, NULL, NULL FROM taken
UNION ALL
SELECT c.id, CASE c.state WHEN 'claimed' THEN 'running' ELSE c.state END, c.fence, c.fingerprint,
       greatest(0, extract(epoch FROM c.expires_at - clock_timestamp()) * 1000)::bigint,
       (c.slot, c.record_offset) <> ($4::integer, g.record_offset)
  FROM given g JOIN @.claim c ON c.handler = $3::smallint AND c.id = g.id
 WHERE EXISTS (SELECT 1 FROM owner) AND NOT EXISTS (SELECT 1 FROM taken t WHERE t.id = g.id))";

/// For messages of which none has a row, which is usual. It fails with a unique violation if one has. Otherwise all are
/// claimed for the first time, and the only row means that the fence is valid. It saves the look-up of each message, ON
/// CONFLICT, which inserts each row on trial, and the row of each message: more than half of the work.
inline constexpr std::string_view kTakeNewClaims = R"(
), lease AS MATERIALIZED (
  SELECT clock_timestamp() AS began_at, clock_timestamp() + $11::bigint * interval '1 millisecond' AS expires_at
), taken AS (
  INSERT INTO @.claim (handler, id, owner, slot, record_offset, fingerprint, claimed_at, expires_at, unbegun_by, unbegun_in)
  SELECT $3::smallint, e.id, $10::uuid, $4::integer, e.record_offset, e.fingerprint, (SELECT began_at FROM lease),
         (SELECT expires_at FROM lease), CASE WHEN NOT $12::boolean THEN $10::uuid END, @run
    FROM (SELECT unnest($7::uuid[]) AS id, unnest($8::bigint[]) AS record_offset, unnest($9::bigint[]) AS fingerprint) AS e
   WHERE EXISTS (SELECT 1 FROM owner)
)
SELECT 1 FROM owner)";

/// A claim waits for the transaction that ends another claim of the same message. It cannot see the id that this
/// transaction commits. A second statement, run once the claim is held, can see it. Few of the ids are known, so the
/// claims are looked up last.
inline constexpr std::string_view kDropDoneClaims = R"(
WITH known AS MATERIALIZED (
  SELECT i.id, i.fingerprint FROM unnest($2::uuid[]) AS g (id) CROSS JOIN LATERAL (
         SELECT id, fingerprint FROM @.inbox WHERE handler = $1::smallint AND id = g.id LIMIT 1) i
), dropped AS (
  DELETE FROM @.claim WHERE handler = $1::smallint AND id = ANY (ARRAY(SELECT id FROM known)) AND owner = $3::uuid
  RETURNING id
)
SELECT k.id, k.fingerprint FROM known k JOIN dropped d ON d.id = k.id)";

/// The claims that the owner still holds, of those that it names.
inline constexpr std::string_view kHeld = R"(
WITH given AS MATERIALIZED (
  SELECT * FROM unnest($2::uuid[], $3::bigint[]{}) AS g (id, fence{}) ORDER BY g.id
), held AS MATERIALIZED (
  SELECT h.id, h.fence, h.slot, h.record_offset, h.fingerprint{}
    FROM given g CROSS JOIN LATERAL (
         SELECT c.id, c.fence, c.slot, c.record_offset, c.fingerprint FROM @.claim c
          WHERE c.handler = $1::smallint AND c.id = g.id AND c.fence = g.fence AND c.owner = $4::uuid AND c.state = 'claimed'
            FOR UPDATE) h
)";

/// It also compares the owner: a process of an older version takes claims over and does not know this column.
inline constexpr std::string_view kBeginClaims = R"(
), begun AS (
  UPDATE @.claim SET unbegun_by = NULL WHERE handler = $1::smallint AND id = ANY (ARRAY(SELECT id FROM held))
)
SELECT id FROM held)";

/// The claims that the owner still holds, of those that it names, are deleted in the order of the list. In the plan
/// that a session keeps, PostgreSQL expects one row of a list that has a LIMIT which it does not know. So it looks up one
/// claim after another, and does not read all of them, whatever the statistics say.
inline constexpr std::string_view kEndClaims = R"(
WITH given AS MATERIALIZED (
  SELECT unnest($2::uuid[]) AS id, unnest($3::bigint[]) AS fence, unnest($5::bytea[]) AS body
   LIMIT (SELECT pg_catalog.cardinality($2::uuid[]))
), gone AS (
  DELETE FROM @.claim c USING given g
   WHERE c.handler = $1::smallint AND c.id = g.id AND c.fence = g.fence AND c.owner = $4::uuid AND c.state = 'claimed'
  RETURNING c.id, c.slot, c.record_offset, c.fingerprint, g.body
), replied AS (
  INSERT INTO @.response (handler, id, body) SELECT $1::smallint, id, body FROM gone WHERE body IS NOT NULL ORDER BY id
  ON CONFLICT (handler, id) DO UPDATE SET body = excluded.body, replied_at = excluded.replied_at
), taken_in AS (
  INSERT INTO @.inbox (handler, id, slot, record_offset, fingerprint)
  SELECT $1::smallint, id, slot, record_offset, fingerprint FROM gone)";

/// It fails with a unique violation if the inbox has an id of a message that was claimed. That cannot be, unless
/// processes run the same handler in different modes.
inline constexpr std::string_view kEnded = R"(
))";
inline constexpr std::string_view kEndedContended = R"(
  ORDER BY id ON CONFLICT DO NOTHING
))";
/// The claims that were held. If all were, a row with NULL stands for them.
inline constexpr std::string_view kWhichEnded = R"(
, counted AS MATERIALIZED (
  SELECT (SELECT count(*) FROM gone) = pg_catalog.cardinality($2::uuid[]) AS all_were_held
)
SELECT NULL::uuid FROM counted WHERE all_were_held
UNION ALL SELECT id FROM gone WHERE NOT (SELECT all_were_held FROM counted))";

inline constexpr std::string_view kFailClaims = R"(
), failed AS (
  UPDATE @.claim c SET state = 'failed', error = h.more FROM held h WHERE c.handler = $1::smallint AND c.id = h.id
)
SELECT id FROM held)";

/// No outside system has seen the fence of a first claim. The fence of a later claim must continue to grow, so its row
/// stays.
inline constexpr std::string_view kGiveClaimsBack = R"(
), gone AS (
  DELETE FROM @.claim WHERE handler = $1::smallint AND id = ANY (ARRAY(SELECT id FROM held WHERE fence = 1))
), kept AS (
  UPDATE @.claim SET state = 'failed' WHERE handler = $1::smallint AND id = ANY (ARRAY(SELECT id FROM held WHERE fence > 1))
)
SELECT id FROM held)";

inline constexpr std::string_view kRenewClaims = R"(
), renewed AS (
  UPDATE @.claim SET expires_at = clock_timestamp() + $5::bigint * interval '1 millisecond'
   WHERE handler = $1::smallint AND id = ANY (ARRAY(SELECT id FROM held))
)
SELECT id FROM held)";

/// Claims whose lease ended before their handler began stand for nothing. After another run of the server nobody could
/// tell that any more. Those that a claim takes over now are left to it. Rows stay as in kGiveClaimsBack.
inline constexpr std::string_view kDropLapsedClaims = R"(
WITH lapsed AS MATERIALIZED (
  SELECT handler, id, fence FROM @.claim
   WHERE state = 'claimed' AND expires_at < clock_timestamp() AND unbegun_by = owner AND unbegun_in = @run
   ORDER BY handler, id LIMIT 1000 FOR UPDATE SKIP LOCKED
), gone AS (
  DELETE FROM @.claim c USING lapsed l WHERE c.handler = l.handler AND c.id = l.id AND l.fence = 1
), kept AS (
  UPDATE @.claim c SET state = 'failed' FROM lapsed l WHERE c.handler = l.handler AND c.id = l.id AND l.fence > 1
)
SELECT 1)";

inline const std::string count_of_claims = R"(
SELECT count(*) FILTER (WHERE state = 'claimed' AND NOT is_over), count(*) FILTER (WHERE state = 'claimed' AND is_over),
       count(*) FILTER (WHERE state = 'failed'), count(*) FILTER (WHERE state = 'parked')
  FROM (SELECT state, expires_at < clock_timestamp() AND NOT )" +
                                           not_begun + R"( AS is_over
          FROM @.claim WHERE $1::smallint IS NULL OR handler = $1::smallint) k)";

/// With or without a third array, which has one value for each claim.
inline std::string select_held(std::string_view with) {
  std::string text;
  std::string_view rest = kHeld;
  const std::string parts[] = {with.empty() ? "" : ", $5::" + std::string(with) + "[]", with.empty() ? "" : ", more",
                               with.empty() ? "" : ", g.more"};
  for (const std::string& part : parts) {
    const auto at = rest.find("{}");
    text.append(rest.substr(0, at)).append(part);
    rest.remove_prefix(at + 2);
  }
  return text.append(rest);
}

}  // namespace turnstile::postgres
