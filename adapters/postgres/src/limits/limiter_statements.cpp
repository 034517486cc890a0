#include "limits/limiter_statements.hpp"

#include <string_view>

#include "wire/identifier.hpp"

namespace turnstile::postgres {

namespace {

// "@." stands for the schema.

constexpr std::string_view kLive = R"(
INSERT INTO @.limiter_process (holder, expires_at)
VALUES ($1::text, clock_timestamp() + $2::bigint * interval '1 microsecond')
ON CONFLICT (holder) DO UPDATE SET expires_at = excluded.expires_at)";

/// A process may have been stopped for a while: its values count again when it renews its row.
constexpr std::string_view kForget = R"(
DELETE FROM @.limiter_process WHERE holder IN (
  SELECT holder FROM @.limiter_process WHERE expires_at < clock_timestamp() - interval '1 minute'
   ORDER BY holder FOR UPDATE SKIP LOCKED))";

constexpr std::string_view kMake = R"(
INSERT INTO @.limiter (name, configured, declared) VALUES ($1::text, $2::bigint, $2::bigint)
ON CONFLICT (name) DO NOTHING)";

/// A process that starts locks the row only if it lowers the limit: the grants of others would keep it waiting.
constexpr std::string_view kLower = R"(
UPDATE @.limiter
   SET configured = $2::bigint, declared = $2::bigint, version = version + 1, changed_at = clock_timestamp()
 WHERE name = $1::text AND configured > $2::bigint)";

constexpr std::string_view kDeclare = R"(
INSERT INTO @.limiter_value (limiter, holder, configured)
SELECT l.id, $3::text, $2::bigint FROM @.limiter l WHERE l.name = $1::text
ON CONFLICT (limiter, holder) DO UPDATE SET configured = excluded.configured)";

/// `@lowest` in the statements below: the lowest value of a live process. NULL if none lives.
constexpr std::string_view kLowest =
    "(SELECT min(v.configured) FROM @.limiter_value v JOIN @.limiter_process h USING (holder)"
    " WHERE v.limiter = l.id AND h.expires_at > clock_timestamp())";

/// Nothing if none lives: the last value stays. A new version, so that no process grants by the limit before it.
constexpr std::string_view kSettle = R"(
UPDATE @.limiter l
   SET configured = d.lowest, declared = d.lowest, version = l.version + 1, changed_at = clock_timestamp()
  FROM (SELECT l.id, @lowest AS lowest FROM @.limiter l WHERE l.name = $1::text) d
 WHERE l.id = d.id AND l.configured <> d.lowest)";

constexpr std::string_view kTidy = R"(
DELETE FROM @.permit_wait w USING @.limiter l
 WHERE l.name = $1::text AND w.limiter = l.id AND w.expires_at < clock_timestamp() - interval '1 minute')";

/// `overdue`: an expired permit blocks a lowered limit (see kTake), and must be swept. `unsettled`: the row has not the
/// lowest value that counts, because a process has ended.
constexpr std::string_view kView = R"(
SELECT l.id, l.version, l.most, l.ordered,
       EXISTS (SELECT 1 FROM @.permit p WHERE p.limiter = l.id AND p.slot > l.most AND p.holder IS NOT NULL)
       AND EXISTS (SELECT 1 FROM @.permit p
                    WHERE p.limiter = l.id AND p.holder IS NOT NULL AND p.expires_at <= clock_timestamp()),
       coalesce(l.configured <> @lowest, false),
       m.holder, m.held, m.held_us, m.waiting, m.waited_us
  FROM (SELECT id, version, configured, coalesce(ordered, configured) AS most, ordered IS NOT NULL AS ordered
          FROM @.limiter WHERE name = $1::text) l
  LEFT JOIN LATERAL (
    SELECT holder, coalesce(h.held, 0) AS held, coalesce(w.waiting, 0) AS waiting,
           coalesce((extract(epoch FROM clock_timestamp() - h.granted) * 1000000)::bigint, 0) AS held_us,
           coalesce((extract(epoch FROM clock_timestamp() - w.since) * 1000000)::bigint, 0) AS waited_us
      FROM (SELECT p.holder, count(*) AS held, max(p.granted_at) AS granted FROM @.permit p
             WHERE p.limiter = l.id AND p.holder IS NOT NULL AND p.expires_at > clock_timestamp() GROUP BY p.holder) h
      FULL JOIN (SELECT w.holder, w.waiting, w.since FROM @.permit_wait w
                  WHERE w.limiter = l.id AND w.expires_at > clock_timestamp()) w USING (holder)) m ON true)";

/// The limit is enforced because at most that many rows can be granted: slots 1 to the limit. After the limit was
/// lowered, some slots above it are still in use. Then only as many of the lowest free slots may be granted as there is
/// room for.
/// That is exact even though other processes grant at the same time. Let b be the highest slot that any process may
/// grant. Then b + (slots in use above b) is at most the limit, and no process grants above b. An expired permit above
/// b counts until it is swept, because its renewal may be in flight.
///
/// The version is compared under the lock, which reads the row again after waiting for a change. The rest reads the
/// snapshot from before the lock (hazard: stale-snapshot). But a process that knows the version has read it after the
/// change, and the change waited for all grants of the version before.
constexpr std::string_view kTake = R"(
WITH known AS MATERIALIZED (
  SELECT l.id, coalesce(l.ordered, l.configured) AS most FROM @.limiter l
   WHERE l.id = $1::bigint AND l.version = $2::bigint FOR SHARE
), room AS MATERIALIZED (
  SELECT k.most, k.most - count(p.holder) AS free, count(p.holder) FILTER (WHERE p.slot > k.most) AS above,
         coalesce(max(p.slot), 0) AS top
    FROM known k LEFT JOIN @.permit p ON p.limiter = k.id GROUP BY k.most
), bound AS MATERIALIZED (
  SELECT r.top, CASE WHEN r.above = 0 THEN r.most WHEN r.free <= 0 THEN 0
                     ELSE (SELECT p.slot FROM @.permit p WHERE p.limiter = $1::bigint AND p.holder IS NULL
                            ORDER BY p.slot OFFSET r.free - 1 LIMIT 1) END AS highest
    FROM room r
), found AS MATERIALIZED (
  SELECT p.slot FROM @.permit p
   WHERE p.limiter = $1::bigint AND p.slot <= (SELECT highest FROM bound)
     AND (p.holder IS NULL OR p.expires_at <= clock_timestamp())
   ORDER BY p.slot LIMIT $3::bigint FOR UPDATE SKIP LOCKED
), again AS (
  UPDATE @.permit p SET generation = p.generation + 1, holder = $4::text, granted_at = clock_timestamp(),
                        expires_at = clock_timestamp() + $5::bigint * interval '1 microsecond'
    FROM found WHERE p.limiter = $1::bigint AND p.slot = found.slot RETURNING p.slot, p.generation
), fresh AS (
  INSERT INTO @.permit (limiter, slot, holder, expires_at)
  SELECT $1::bigint, n, $4::text, clock_timestamp() + $5::bigint * interval '1 microsecond'
    FROM bound b, generate_series(b.top + 1, least(b.highest, b.top + $3::bigint - (SELECT count(*) FROM found))) AS n
  ON CONFLICT DO NOTHING RETURNING slot, generation
)
SELECT slot, generation FROM again UNION ALL SELECT slot, generation FROM fresh)";

constexpr std::string_view kSweep = R"(
UPDATE @.permit p SET holder = NULL
  FROM (SELECT limiter, slot FROM @.permit
         WHERE limiter = $1::bigint AND holder IS NOT NULL AND expires_at <= clock_timestamp()
         ORDER BY slot FOR UPDATE SKIP LOCKED) expired
 WHERE p.limiter = expired.limiter AND p.slot = expired.slot)";

constexpr std::string_view kGiveBack = R"(
UPDATE @.permit p SET holder = NULL FROM unnest($2::bigint[], $3::bigint[]) AS t (slot, generation)
 WHERE p.limiter = $1::bigint AND p.slot = t.slot AND p.generation = t.generation AND p.holder = $4::text)";

/// An expired permit stays expired, even if no process has taken it yet.
constexpr std::string_view kRenew = R"(
UPDATE @.permit p SET expires_at = clock_timestamp() + $5::bigint * interval '1 microsecond'
  FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS t (limiter, slot, generation)
 WHERE p.limiter = t.limiter AND p.slot = t.slot AND p.generation = t.generation AND p.holder = $4::text
   AND p.expires_at > clock_timestamp()
RETURNING p.limiter, p.slot, p.generation)";

/// A grant whose answer was lost must not wait for its lease (hazard: late-grant).
constexpr std::string_view kKeepOnly = R"(
UPDATE @.permit p SET holder = NULL
 WHERE p.holder = $4::text
   AND NOT EXISTS (SELECT 1 FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS t (limiter, slot, generation)
                    WHERE p.limiter = t.limiter AND p.slot = t.slot AND p.generation = t.generation))";

constexpr std::string_view kAwait = R"(
INSERT INTO @.permit_wait AS w (limiter, holder, waiting, expires_at)
VALUES ($1::bigint, $2::text, $3::bigint, clock_timestamp() + $4::bigint * interval '1 microsecond')
ON CONFLICT (limiter, holder) DO UPDATE
   SET waiting = excluded.waiting, expires_at = excluded.expires_at,
       since = CASE WHEN $5::bigint = 1 OR w.expires_at <= clock_timestamp() THEN excluded.since ELSE w.since END)";

constexpr std::string_view kOrder = R"(
UPDATE @.limiter SET ordered = $2::bigint, version = version + 1, changed_at = clock_timestamp() WHERE name = $1::text)";

constexpr std::string_view kUnorder = R"(
UPDATE @.limiter SET ordered = NULL, version = version + 1, changed_at = clock_timestamp() WHERE name = $1::text)";

std::string in_schema(const std::string& schema, std::string_view statement) {
  const std::string prefix = quote_identifier(schema) + ".";
  std::string out, whole(statement);
  if (const auto at = whole.find("@lowest"); at != std::string::npos) whole.replace(at, 7, kLowest);
  std::string_view text = whole;
  for (auto at = text.find("@."); at != std::string_view::npos; at = text.find("@.")) {
    out.append(text.substr(0, at)).append(prefix);
    text.remove_prefix(at + 2);
  }
  return out.append(text);
}

}  // namespace

LimiterStatements::LimiterStatements(const std::string& schema) {
  lock_timeout = "SELECT pg_catalog.set_config('lock_timeout', $1::text, true)";
  live = in_schema(schema, kLive);
  values = in_schema(schema, "SELECT limiter FROM @.limiter_value WHERE holder = $1::text");
  forget = in_schema(schema, kForget);
  make = in_schema(schema, kMake);
  lock = in_schema(schema, "SELECT 1 FROM @.limiter WHERE name = $1::text FOR UPDATE");
  lower = in_schema(schema, kLower);
  share = in_schema(schema, "SELECT 1 FROM @.limiter WHERE name = $1::text FOR SHARE");
  declare = in_schema(schema, kDeclare);
  settle = in_schema(schema, kSettle);
  tidy = in_schema(schema, kTidy);
  view = in_schema(schema, kView);
  take = in_schema(schema, kTake);
  sweep = in_schema(schema, kSweep);
  give_back = in_schema(schema, kGiveBack);
  renew = in_schema(schema, kRenew);
  keep_only = in_schema(schema, kKeepOnly);
  await = in_schema(schema, kAwait);
  no_wait = in_schema(schema, "DELETE FROM @.permit_wait WHERE limiter = $1::bigint AND holder = $2::text");
  leave = in_schema(schema, "DELETE FROM @.permit_wait WHERE holder = $1::text");
  end = in_schema(schema, "DELETE FROM @.limiter_process WHERE holder = $1::text");
  order = in_schema(schema, kOrder);
  unorder = in_schema(schema, kUnorder);
}

}  // namespace turnstile::postgres
