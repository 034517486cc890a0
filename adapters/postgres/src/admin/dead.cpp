#include <array>
#include <sstream>

#include "admin/session.hpp"
#include "wire/text.hpp"

namespace turnstile::postgres {

namespace {

/// There are few waiting dead letters. If there are many, a missing count is not the main problem.
constexpr Patience kLooking{10'000};

// replayed_at is NULL while the dead letter waits. While a replay is in doubt, it is the time when that replay began,
// plus 200,000 years. That time is the replay's token. 'infinity' is a replay in doubt that an earlier build began
// without a token. Builds that do not know such a time treat it as replayed, and do not touch it.
// 200,000 years are 500 times the calendar's period of 400 years, so the sum is exact in UTC.
const std::string kAsBegun = "interval '200000 years'";
const std::string kInDoubt = "(d.replayed_at >= timestamptz '200000-01-01 00:00:00+00')";
const std::string kSummary =
    "SELECT d.id, coalesce(h.name, ''), f.consumer_group, f.topic, f.partition, d.record_offset, d.message_id, d.reason, "
    "       d.error, d.attempts, " +
    microseconds_of("d.died_at") + ", " + microseconds_of("CASE WHEN NOT " + kInDoubt + " THEN d.replayed_at END") +
    ", d.dead_topic, d.dead_partition, d.dead_offset, coalesce(" + kInDoubt + ", false), " +
    microseconds_of("CASE WHEN " + kInDoubt + " AND isfinite(d.replayed_at) THEN d.replayed_at - " + kAsBegun +
                    " END") +
    ", d.replayed_at::text";
constexpr std::size_t kSummaryColumns = 18;
/// Whether 64 bits can store it in microseconds; they cannot store infinity.
constexpr std::string_view kTimeIsKnown =
    "extract(epoch FROM d.record_timestamp) BETWEEN -210866803200 AND 9223372036854";
constexpr std::string_view kFrom =
    " FROM dead d LEFT JOIN handler h ON h.id = d.handler LEFT JOIN fence f ON f.slot = d.slot ";

void set_begun(DeadSummary& dead, std::optional<DatabaseTime> began_at) {
  dead.replay_began_at = began_at;
  dead.replay_token.reset();
  if (began_at)
    dead.replay_token = std::to_string(dead.number) + "-" + std::to_string(began_at->time_since_epoch().count());
}

DeadSummary summary_at(const Rows& rows, std::size_t row) {
  DeadSummary dead;
  dead.number = rows.get<std::int64_t>(row, 0);
  dead.handler = rows.get<std::string>(row, 1);
  dead.from.group = text_or_empty(rows, row, 2);
  dead.from.at.topic = text_or_empty(rows, row, 3);
  if (rows.at(row, 4)) dead.from.at.partition = rows.get<std::int32_t>(row, 4);
  dead.offset = rows.get<Offset>(row, 5);
  if (rows.at(row, 6)) dead.id = id_at(rows, row, 6);
  dead.reason = rows.get<std::string>(row, 7);
  dead.error = rows.get<std::string>(row, 8);
  dead.attempts = rows.get<int>(row, 9);
  dead.died_at = time_at(rows, row, 10);
  dead.replayed_at = time_or_none(rows, row, 11);
  dead.replay_in_doubt = rows.get<bool>(row, 15);
  set_begun(dead, time_or_none(rows, row, 16));
  if (const auto mark = rows.at(row, 17)) dead.replay_mark = std::string(*mark);
  return dead;
}

std::optional<TopicPartitionOffset> dead_letter_at(const Rows& rows, std::size_t row) {
  if (!rows.at(row, 12)) return std::nullopt;
  TopicPartitionOffset at{{rows.get<std::string>(row, 12), 0}, 0};
  if (rows.at(row, 13)) at.at.partition = rows.get<std::int32_t>(row, 13);
  if (rows.at(row, 14)) at.offset = rows.get<Offset>(row, 14);
  return at;
}

std::vector<Header> headers_of(const Rows& rows) {
  std::vector<Header> headers;
  for (std::size_t row = 0; row < rows.size(); ++row) {
    headers.push_back({bytes_at(rows, row, 0).value_or(""), bytes_at(rows, row, 1)});
  }
  return headers;
}

std::optional<std::string> damage_of(const Rows& rows) {
  if (const auto time = rows.at(0, kSummaryColumns + 6))
    return "its record_timestamp is '" + std::string(*time) + "', so its row was changed by hand";
  // A table cannot store lists of pairs. A shorter list would be filled with nulls without an error.
  const auto names = rows.get<std::int64_t>(0, kSummaryColumns + 4),
             values = rows.get<std::int64_t>(0, kSummaryColumns + 5);
  if (names == values) return std::nullopt;
  return "it has " + std::to_string(names) + " header names but " + std::to_string(values) +
         " header values, so its row was changed by hand, and its headers are lost";
}

/// "UUID,UUID". Empty for NULL.
std::vector<MessageId> ids_at(const Rows& rows, std::size_t row, std::size_t column) {
  std::vector<MessageId> ids;
  std::istringstream list(text_or_empty(rows, row, column));
  for (std::string id; std::getline(list, id, ',');) ids.push_back(MessageId::from(id));
  return ids;
}

}  // namespace

std::vector<DeadSummary> Admin::dead(const DeadFilter& filter) {
  const Rows rows = session_->ask(
      kSummary + std::string(kFrom) +
          "WHERE d.id > $1::bigint AND ($2::text IS NULL OR h.name = $2) AND ($3::text IS NULL OR f.topic = $3) "
          "AND ($4::uuid IS NULL OR d.message_id = $4) AND ($5::boolean OR d.replayed_at IS NULL OR " +
          kInDoubt +
          ") "
          "AND ($7::bigint IS NULL OR d.id <= $7) ORDER BY d.id LIMIT $6::bigint",
      {std::to_string(filter.after), filter.handler, filter.topic,
       filter.id ? std::optional(filter.id->text()) : std::nullopt, filter.with_replayed ? "true" : "false",
       std::to_string(filter.most), filter.up_to ? std::optional(std::to_string(*filter.up_to)) : std::nullopt});
  std::vector<DeadSummary> all;
  for (std::size_t row = 0; row < rows.size(); ++row) all.push_back(summary_at(rows, row));
  return all;
}

std::optional<DeadRecord> Admin::load_dead(std::int64_t number) {
  return session_->transact(Patience{}, [&]() -> std::optional<DeadRecord> {
    const Arguments which{std::to_string(number)};
    const std::string time_is_known(kTimeIsKnown);
    const Rows rows = session_->run(
        kSummary + ", CASE WHEN " + time_is_known +
            " THEN (extract(epoch FROM d.record_timestamp) * 1000)::bigint END, "
            "d.record_key, d.record_payload, d.incarnation, cardinality(d.header_names)::bigint, "
            "cardinality(d.header_values)::bigint, CASE WHEN NOT (" +
            time_is_known + ") THEN d.record_timestamp::text END" + std::string(kFrom) + "WHERE d.id = $1::bigint",
        which);
    if (rows.empty()) return std::nullopt;
    DeadRecord dead;
    dead.summary = summary_at(rows, 0);
    dead.dead_letter = dead_letter_at(rows, 0);
    dead.record.topic = dead.summary.from.at.topic;
    dead.record.partition = dead.summary.from.at.partition;
    dead.record.offset = dead.summary.offset;
    if (rows.at(0, kSummaryColumns))
      dead.record.timestamp = Timestamp(std::chrono::milliseconds(rows.get<std::int64_t>(0, kSummaryColumns)));
    dead.record.key = bytes_at(rows, 0, kSummaryColumns + 1);
    dead.record.payload = bytes_at(rows, 0, kSummaryColumns + 2);
    dead.incarnation = rows.get<std::int32_t>(0, kSummaryColumns + 3);
    dead.damage = damage_of(rows);
    dead.record.headers = headers_of(session_->run(
        "SELECT u.name, u.value FROM dead d, unnest(d.header_names, d.header_values) WITH ORDINALITY AS u (name, value, n) "
        "WHERE d.id = $1::bigint ORDER BY u.n",
        which));
    return dead;
  });
}

std::vector<DeadOfTopic> Admin::dead_by_topic() {
  const Rows rows = session_->ask(
      "SELECT coalesce(f.consumer_group, ''), coalesce(f.topic, ''), sum(d.count)::bigint "
      "FROM (SELECT slot, count(*) FROM dead WHERE replayed_at IS NULL GROUP BY slot) d "
      "LEFT JOIN fence f ON f.slot = d.slot GROUP BY 1, 2 ORDER BY 3 DESC, 1, 2");
  std::vector<DeadOfTopic> all;
  for (std::size_t row = 0; row < rows.size(); ++row) {
    all.push_back({rows.get<std::string>(row, 0), rows.get<std::string>(row, 1), rows.get<std::int64_t>(row, 2)});
  }
  return all;
}

std::int64_t Admin::newest_dead() {
  return session_->ask("SELECT coalesce(max(id), 0) FROM dead").get<std::int64_t>(0, 0);
}

WaitingReport Admin::waiting() {
  return session_->transact(kLooking, [&] {
    WaitingReport report;
    const Rows dead = session_->run(
        "SELECT coalesce(h.name, ''), d.reason, count(*), " + microseconds_of("min(d.died_at)") +
        " FROM dead d LEFT JOIN handler h ON h.id = d.handler WHERE d.replayed_at IS NULL GROUP BY 1, 2 ORDER BY 3 DESC, 1, 2");
    for (std::size_t row = 0; row < dead.size(); ++row) {
      report.dead.push_back({dead.get<std::string>(row, 0), dead.get<std::string>(row, 1),
                             dead.get<std::int64_t>(row, 2), time_at(dead, row, 3)});
    }
    const Rows in_doubt =
        session_->run("SELECT d.id, count(*) OVER () FROM dead d WHERE " + kInDoubt + " ORDER BY d.id LIMIT 5");
    for (std::size_t row = 0; row < in_doubt.size(); ++row) {
      report.replays_in_doubt = in_doubt.get<std::int64_t>(row, 1);
      report.in_doubt.push_back(in_doubt.get<std::int64_t>(row, 0));
    }
    const Rows claims = session_->run(
        "SELECT coalesce(h.name, ''), count(*) FILTER (WHERE c.state = 'claimed' AND NOT c.is_unknown), "
        "       count(*) FILTER (WHERE c.is_unknown), "
        "       count(*) FILTER (WHERE c.state = 'failed'), count(*) FILTER (WHERE c.state = 'parked'), "
        "       array_to_string((array_agg(c.id ORDER BY c.claimed_at, c.id) "
        "                        FILTER (WHERE c.is_unknown OR c.state = 'parked'))[1:5], ','), "
        "       count(d.message_id) FILTER (WHERE c.state = 'failed') "
        "FROM (SELECT *, state = 'claimed' AND expires_at < clock_timestamp() AND NOT (" +
        not_begun +
        ") AS is_unknown FROM claim) c LEFT JOIN handler h ON h.id = c.handler "
        "LEFT JOIN (SELECT DISTINCT handler, message_id FROM dead WHERE replayed_at IS NULL AND reason IN ('failed', 'rejected')) d "
        "  ON d.handler = c.handler AND d.message_id = c.id GROUP BY 1 ORDER BY 1");
    for (std::size_t row = 0; row < claims.size(); ++row) {
      report.claims.push_back({claims.get<std::string>(row, 0), claims.get<std::int64_t>(row, 1),
                               claims.get<std::int64_t>(row, 2), claims.get<std::int64_t>(row, 3),
                               claims.get<std::int64_t>(row, 4), ids_at(claims, row, 5),
                               claims.get<std::int64_t>(row, 6)});
    }
    report.now = time_at(session_->run("SELECT " + microseconds_of("clock_timestamp()")), 0, 0);
    return report;
  });
}

namespace {

/// Of `seen`, for a statement that ends with kAsSeen.
Arguments as_seen(const DeadSummary& seen) { return {std::to_string(seen.number), seen.replay_mark}; }
const std::string kAsSeen = " WHERE d.id = $1::bigint AND d.replayed_at IS NOT DISTINCT FROM $2::timestamptz ";

}  // namespace

bool Admin::replay_once(const DeadSummary& seen, const std::function<bool(const DeadSummary& begun)>& publish) {
  const Rows marked =
      session_->ask("UPDATE dead d SET replayed_at = clock_timestamp() + " + kAsBegun + kAsSeen + "RETURNING " +
                        microseconds_of("d.replayed_at - " + kAsBegun) + ", d.replayed_at::text",
                    as_seen(seen));
  if (marked.empty()) return false;
  DeadSummary begun = seen;
  begun.replayed_at.reset();
  begun.replay_in_doubt = true;
  set_begun(begun, time_at(marked, 0, 0));
  begun.replay_mark = marked.get<std::string>(0, 1);
  return session_->transact(Patience{}, [&] {
    // Until this transaction ends, no other transaction settles or replaces the replay.
    if (session_->run("SELECT 1 FROM dead d" + kAsSeen + "FOR UPDATE", as_seen(begun)).empty()) return false;
    if (publish(begun)) session_->run("UPDATE dead d SET replayed_at = clock_timestamp()" + kAsSeen, as_seen(begun));
    else session_->run("UPDATE dead SET replayed_at = $2::timestamptz WHERE id = $1::bigint", as_seen(seen));
    return true;
  });
}

bool Admin::settle_replay(const DeadSummary& seen) {
  return session_->ask("UPDATE dead d SET replayed_at = clock_timestamp()" + kAsSeen + "AND " + kInDoubt, as_seen(seen))
             .affected() > 0;
}

bool Admin::mark_replayed(const DeadSummary& seen, const std::function<void()>& publish) {
  return session_->transact(Patience{}, [&] {
    const Rows marked = session_->run("UPDATE dead d SET replayed_at = clock_timestamp()" + kAsSeen, as_seen(seen));
    if (marked.affected() == 0) return false;
    publish();
    return true;
  });
}

}  // namespace turnstile::postgres
