#include "turnstile/postgres/audit.hpp"

#include <algorithm>
#include <limits>

#include "admin/dead_rows.hpp"
#include "admin/session.hpp"
#include "turnstile/error.hpp"
#include "turnstile/postgres/store.hpp"

namespace turnstile::postgres {

namespace {

/// A pass over a large inbox takes minutes.
constexpr Patience kReading{3'600'000};
constexpr int kEffectsAtOnce = 20'000;
/// A row of `inbox i`, by milliseconds since 1970.
constexpr std::string_view kAtTheseTimes =
    "($4::bigint IS NULL OR i.seen_at >= timestamptz 'epoch' + $4::bigint * interval '1 millisecond') "
    "AND ($5::bigint IS NULL OR i.seen_at < timestamptz 'epoch' + $5::bigint * interval '1 millisecond')";

/// "{id,id}"
std::string array_of(std::span<const MessageId> ids) {
  std::string text = "{";
  text.reserve(2 + ids.size() * 37);
  for (const MessageId& id : ids) {
    if (text.size() > 1) text += ',';
    text += id.text();
  }
  return text + "}";
}

/// Slots and their ranges as arrays of SQL.
struct RangeArrays {
  explicit RangeArrays(std::span<const AuditSnapshot::SlotRange> ranges) {
    for (const auto& range : ranges) {
      const char* comma = slots.size() > 1 ? "," : "";
      slots += comma + std::to_string(range.slot);
      begins += comma + std::to_string(range.begin);
      lasts += comma + std::to_string(range.end == std::numeric_limits<Offset>::max() ? range.end : range.end - 1);
    }
    for (std::string* array : {&slots, &begins, &lasts}) *array += '}';
  }
  std::string slots = "{", begins = "{", lasts = "{";
};

std::optional<std::string> milliseconds_or_null(const std::optional<Timestamp>& time) {
  if (!time) return std::nullopt;
  return std::to_string(time->time_since_epoch().count());
}

/// For each slot: the effects that are in none of the ranges, and whether a record can have made them. In the order of
/// topics and groups.
/// Turnstile deletes no row of `fence`, but an operator may have done it. Slots come from a sequence, so a slot above its
/// last value never was a partition's. That value is NULL for a role that may not read the sequence.
std::string count_elsewhere() {
  return "WITH counted AS MATERIALIZED ("
         "  SELECT i.slot, r.slot IS NOT NULL AS in_ranges, r.slot IS NOT NULL AND i.record_offset < 0 AS negative, "
         "         count(*) AS effects "
         "  FROM inbox i LEFT JOIN unnest($2::integer[], $3::bigint[]) r (slot, first) ON r.slot = i.slot "
         "  WHERE i.handler = $1::smallint AND (r.slot IS NULL OR i.record_offset < r.first) AND " +
         std::string(kAtTheseTimes) +
         "  GROUP BY 1, 2, 3), "
         "known AS ("
         "  SELECT CASE WHEN has_sequence_privilege(sequence, 'SELECT') THEN pg_sequence_last_value(sequence::regclass) END "
         "           AS last_slot, "
         "         (SELECT max(slot) FROM fence) AS highest_slot "
         "  FROM pg_get_serial_sequence('fence', 'slot') sequence) "
         "SELECT c.slot, c.effects, c.in_ranges, "
         "       c.negative OR coalesce(f.slot IS NULL AND (c.slot < 0 OR c.slot > k.last_slot AND c.slot > k.highest_slot), "
         "                              false), "
         "       f.topic, f.consumer_group "
         "FROM counted c CROSS JOIN known k LEFT JOIN fence f ON f.slot = c.slot ORDER BY f.topic, f.consumer_group";
}

void add_to(std::vector<AuditedElsewhere::Others>& others, const std::string& topic, const std::string& group,
            std::int64_t effects) {
  if (others.empty() || others.back().topic != topic || others.back().group != group)
    others.push_back({topic, group, 0});
  others.back().effects += effects;
}

}  // namespace

struct AuditSnapshot::Impl {
  explicit Impl(const PostgresSettings& settings) : session(settings) {
    open_store(settings)->check_schema();
    session.open_snapshot(kReading);
  }

  Admin::Session session;
  std::string handler;  ///< its number
  std::vector<AuditedPartition> partitions;
  std::optional<DatabaseTime> all_since;
  DatabaseTime taken_at;
};

AuditSnapshot::AuditSnapshot(const PostgresSettings& settings, std::string group, std::string topic,
                             std::string handler)
    : impl_(std::make_unique<Impl>(settings)) {
  const Rows of = impl_->session.run("SELECT h.id, " + microseconds_of("z.forgotten_before") + ", " +
                                         microseconds_of("clock_timestamp()") +
                                         " FROM handler h LEFT JOIN horizon z ON z.handler = h.id WHERE h.name = $1",
                                     {handler});
  if (of.empty()) {
    throw Error(Code::not_found, "no handler " + handler + " has stored ids in schema " + impl_->session.schema() +
                                     "; [topics." + topic + "] handler names it; see: turnstile inbox stats");
  }
  impl_->handler = of.get<std::string>(0, 0);
  impl_->all_since = time_or_none(of, 0, 1);
  impl_->taken_at = time_at(of, 0, 2);
  const Rows rows = impl_->session.run(
      "SELECT f.partition, f.slot, f.incarnation, w.watermark, p.next_offset "
      "FROM fence f LEFT JOIN watermark w ON w.slot = f.slot "
      "LEFT JOIN progress p ON p.slot = f.slot AND p.handler = $3::smallint AND p.incarnation = f.incarnation "
      "WHERE f.consumer_group = $1 AND f.topic = $2 ORDER BY f.partition",
      {group, topic, impl_->handler});
  if (rows.empty()) {
    throw Error(Code::not_found, "group " + group + " has claimed no partition of topic " + topic + " in schema " +
                                     impl_->session.schema() +
                                     "; name its group with --group; see: turnstile inbox stats");
  }
  for (std::size_t row = 0; row < rows.size(); ++row) {
    AuditedPartition& partition = impl_->partitions.emplace_back();
    partition.partition = rows.get<std::int32_t>(row, 0);
    partition.slot = rows.get<std::int32_t>(row, 1);
    partition.incarnation = rows.get<std::int32_t>(row, 2);
    if (rows.at(row, 3)) partition.watermark = rows.get<Offset>(row, 3);
    if (rows.at(row, 4)) partition.next_offset = rows.get<Offset>(row, 4);
  }
}

AuditSnapshot::~AuditSnapshot() = default;

std::vector<AuditedLimiter> AuditSnapshot::limiters_of(const PostgresSettings& settings) {
  const Rows rows = Admin::Session(settings).ask(
      "SELECT l.name, coalesce(l.ordered, l.configured), count(p.slot), "
      "       coalesce(max(p.granted_at) > l.changed_at, false) "
      "FROM limiter l LEFT JOIN permit p ON p.limiter = l.id AND p.holder IS NOT NULL AND p.expires_at > clock_timestamp() "
      "GROUP BY l.id ORDER BY l.name");
  std::vector<AuditedLimiter> limiters;
  for (std::size_t row = 0; row < rows.size(); ++row)
    limiters.push_back({rows.get<std::string>(row, 0), rows.get<std::int64_t>(row, 1), rows.get<std::int64_t>(row, 2),
                        rows.get<bool>(row, 3)});
  return limiters;
}

std::vector<AuditedLimiter> audited_limiters(const PostgresSettings& settings) {
  return AuditSnapshot::limiters_of(settings);
}

const std::vector<AuditedPartition>& AuditSnapshot::partitions() const noexcept { return impl_->partitions; }

std::optional<DatabaseTime> AuditSnapshot::all_since() const noexcept { return impl_->all_since; }

DatabaseTime AuditSnapshot::taken_at() const noexcept { return impl_->taken_at; }

// `= ANY` of a constant array lets the planner choose between the index and one pass over the table that looks each id up
// in a hash of the array. For a join with unnest() it knows nothing of the ids, and may hash the whole table each time.
std::vector<AuditedEffect> AuditSnapshot::effects(std::span<const MessageId> ids) {
  const Rows rows = impl_->session.run(
      "SELECT id, slot, record_offset FROM inbox WHERE handler = $2::smallint AND id = ANY ($1::uuid[])",
      {array_of(ids), impl_->handler});
  std::vector<AuditedEffect> effects;
  effects.reserve(rows.size());
  for (std::size_t row = 0; row < rows.size(); ++row)
    effects.push_back({id_at(rows, row, 0), rows.get<std::int32_t>(row, 1), rows.get<Offset>(row, 2)});
  return effects;
}

std::vector<AuditedClaim> AuditSnapshot::claims(std::span<const MessageId> ids) {
  const Rows rows = impl_->session.run(
      "SELECT id, CASE WHEN state = 'claimed' AND expires_at < clock_timestamp() AND NOT " + not_begun +
          " THEN 'unknown' ELSE state END FROM claim WHERE handler = $2::smallint AND id = ANY ($1::uuid[])",
      {array_of(ids), impl_->handler});
  std::vector<AuditedClaim> claims;
  for (std::size_t row = 0; row < rows.size(); ++row)
    claims.push_back({id_at(rows, row, 0), rows.get<std::string>(row, 1)});
  return claims;
}

std::vector<AuditedRetry> AuditSnapshot::retries(std::span<const MessageId> ids) {
  // A record that came back names the first one. It can become a dead letter at its new place.
  const Rows rows = impl_->session.run(
      "SELECT d.message_id, d.id, " + std::string(kWaiting) +
          ", f.topic || '[' || f.partition || ']@' || d.record_offset "
          "FROM dead d LEFT JOIN fence f ON f.slot = d.slot "
          "WHERE d.handler = $2::smallint AND d.message_id = ANY ($1::uuid[]) "
          " AND (d.reason = 'dropped' OR 'turnstile-replayed-from'::bytea = ANY (d.header_names) OR "
          "      EXISTS (SELECT FROM claim c WHERE c.handler = d.handler AND c.id = d.message_id AND c.state = 'failed')) "
          "UNION ALL SELECT message_id, NULL, NULL, NULL FROM retry "
          "WHERE handler = $2::smallint AND message_id = ANY ($1::uuid[])",
      {array_of(ids), impl_->handler});
  std::vector<AuditedRetry> retries;
  for (std::size_t row = 0; row < rows.size(); ++row) {
    auto& retry = retries.emplace_back();
    retry.id = id_at(rows, row, 0);
    if (!rows.at(row, 1)) continue;
    retry.dead = rows.get<std::int64_t>(row, 1);
    retry.waits = rows.get<bool>(row, 2);
    retry.place = text_or_empty(rows, row, 3);
  }
  return retries;
}

bool AuditSnapshot::has_claims() {
  return !impl_->session.run("SELECT 1 FROM claim WHERE handler = $1::smallint LIMIT 1", {impl_->handler}).empty();
}

std::vector<AuditedDead> AuditSnapshot::dead(const AuditedPartition& of, Offset begin, Offset end) {
  const Rows rows = impl_->session.run(
      "SELECT d.id, d.record_offset, d.reason, d.dead_topic IS NULL, " +
          microseconds_of("CASE WHEN " + std::string(kReplayed) + " THEN d.replayed_at END") +
          ", EXISTS (SELECT FROM inbox i WHERE i.handler = d.handler AND i.id = d.message_id AND i.slot = d.slot AND "
          "i.record_offset = d.record_offset AND i.seen_at > d.died_at) "
          "FROM dead d WHERE d.handler = $1::smallint AND d.slot = $2::integer AND d.incarnation = $3::integer "
          "AND d.record_offset >= $4::bigint AND d.record_offset < $5::bigint ORDER BY d.record_offset",
      {impl_->handler, std::to_string(of.slot), std::to_string(of.incarnation), std::to_string(begin),
       std::to_string(end)});
  std::vector<AuditedDead> dead;
  for (std::size_t row = 0; row < rows.size(); ++row) {
    dead.push_back({rows.get<std::int64_t>(row, 0), rows.get<Offset>(row, 1), rows.get<std::string>(row, 2),
                    rows.get<bool>(row, 3), time_or_none(rows, row, 4), rows.get<bool>(row, 5)});
  }
  return dead;
}

void AuditSnapshot::each_effect(
    std::span<const SlotRange> ranges,
    const std::function<void(std::int32_t slot, Offset offset, std::string_view id)>& on_row) {
  const RangeArrays arrays(ranges);
  impl_->session.run(
      "DECLARE effects NO SCROLL CURSOR FOR SELECT i.slot, i.record_offset, i.id FROM inbox i "
      "JOIN unnest($2::integer[], $3::bigint[], $4::bigint[]) r (slot, first, last) ON r.slot = i.slot "
      "WHERE i.handler = $1::smallint AND i.record_offset BETWEEN r.first AND r.last",
      {impl_->handler, arrays.slots, arrays.begins, arrays.lasts});
  for (;;) {
    const Rows rows = impl_->session.run("FETCH " + std::to_string(kEffectsAtOnce) + " FROM effects");
    for (std::size_t row = 0; row < rows.size(); ++row)
      on_row(rows.get<std::int32_t>(row, 0), rows.get<Offset>(row, 1), *rows.at(row, 2));
    if (rows.size() < kEffectsAtOnce) break;
  }
  impl_->session.run("CLOSE effects");
}

AuditedElsewhere AuditSnapshot::elsewhere(std::span<const SlotRange> ranges, const AuditedTimes& times,
                                          std::size_t most) {
  const RangeArrays arrays(ranges);
  const auto from = milliseconds_or_null(times.from), to = milliseconds_or_null(times.to);
  const Rows rows = impl_->session.run(count_elsewhere(), {impl_->handler, arrays.slots, arrays.begins, from, to});
  AuditedElsewhere found;
  std::string stray_slots = "{";
  for (std::size_t row = 0; row < rows.size(); ++row) {
    const auto slot = rows.get<std::int32_t>(row, 0);
    const auto effects = rows.get<std::int64_t>(row, 1);
    const bool in_ranges = rows.get<bool>(row, 2);
    if (slot == 0) {
      found.by_call += effects;
    } else if (rows.get<bool>(row, 3)) {
      found.strays += effects;
      if (!in_ranges) stray_slots += (stray_slots.size() > 1 ? "," : "") + std::to_string(slot);
    } else if (in_ranges) {
      found.before += effects;
    } else if (!rows.at(row, 4)) {
      found.unknown += effects;
    } else {
      add_to(found.others, rows.get<std::string>(row, 4), rows.get<std::string>(row, 5), effects);
    }
  }
  if (found.strays == 0) return found;
  const Rows strays = impl_->session.run(
      "SELECT i.id, i.slot, i.record_offset FROM inbox i WHERE i.handler = $1::smallint AND "
      "(i.slot = ANY ($2::integer[]) OR i.record_offset < 0 AND i.slot = ANY ($3::integer[])) AND " +
          std::string(kAtTheseTimes) + " ORDER BY i.slot, i.record_offset, i.id LIMIT $6::bigint",
      {impl_->handler, stray_slots + "}", arrays.slots, from, to, std::to_string(most)});
  for (std::size_t row = 0; row < strays.size(); ++row)
    found.some_strays.push_back({id_at(strays, row, 0), strays.get<std::int32_t>(row, 1), strays.get<Offset>(row, 2)});
  return found;
}

AuditedOutbox AuditSnapshot::outbox() {
  const Rows rows =
      impl_->session.run("SELECT count(*) FILTER (WHERE shard >= 0), count(*) FILTER (WHERE shard = -1) FROM outbox");
  return {rows.get<std::int64_t>(0, 0), rows.get<std::int64_t>(0, 1)};
}

}  // namespace turnstile::postgres
