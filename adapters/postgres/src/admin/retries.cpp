#include "turnstile/postgres/retries.hpp"

#include "admin/session.hpp"
#include "wire/text.hpp"

namespace turnstile::postgres {

namespace {

constexpr int kRetriesAtOnce = 5'000;
/// Whether the relay has still to send it.
const std::string kHasEntry = "EXISTS (SELECT FROM retry_due d WHERE d.due_at = r.due_at AND d.id = r.id)";
/// Its number in the outbox, if the broker refused the record of this attempt. Few messages are in this shard.
const std::string kRefused =
    "(SELECT min(o.id) FROM outbox o WHERE o.shard = -1 AND o.message_id = r.message_id AND"
    " array_position(o.header_values, convert_to(r.id || '.' || r.attempts, 'UTF8')) IS NOT NULL)";
constexpr const char* kOfFilter =
    " ($1::bigint IS NULL OR r.id = $1) AND ($2::text IS NULL OR r.topic = $2) AND"
    " ($3::text IS NULL OR r.handler = (SELECT h.id FROM handler h WHERE h.name = $3)) AND"
    " ($4::bytea IS NULL OR r.record_key = $4) AND ($5::uuid IS NULL OR r.message_id = $5) ";

Arguments arguments_of(const RetryFilter& filter) {
  return {filter.number ? std::optional(std::to_string(*filter.number)) : std::nullopt, filter.topic, filter.handler,
          filter.key ? std::optional("\\x" + hex(*filter.key)) : std::nullopt,
          filter.id ? std::optional(filter.id->text()) : std::nullopt};
}

}  // namespace

std::vector<StoredRetry> Admin::retries(const RetryFilter& filter, std::int64_t most) {
  Arguments arguments = arguments_of(filter);
  arguments.emplace_back(std::to_string(most));
  const Rows rows = session_->ask(
      "SELECT r.id, h.name, r.topic, r.partition, r.record_offset, r.message_id, r.record_key, "
      "coalesce(octet_length(r.record_payload), 0), r.attempts, r.error, " +
          microseconds_of("r.stored_at") + ", " + microseconds_of("CASE WHEN r.due_at < 'infinity' THEN r.due_at END") +
          ", r.due_at < 'infinity' AND NOT " + kHasEntry + ", " + kRefused +
          " FROM retry r JOIN handler h ON h.id = r.handler WHERE" + kOfFilter +
          "ORDER BY r.due_at, r.id LIMIT $6::bigint",
      arguments);
  std::vector<StoredRetry> all;
  for (std::size_t row = 0; row < rows.size(); ++row) {
    all.push_back({.number = rows.get<std::int64_t>(row, 0),
                   .handler = rows.get<std::string>(row, 1),
                   .topic = rows.get<std::string>(row, 2),
                   .partition = rows.get<std::int32_t>(row, 3),
                   .offset = rows.get<Offset>(row, 4),
                   .id = id_at(rows, row, 5),
                   .key = bytes_at(rows, row, 6),
                   .bytes = rows.get<std::int64_t>(row, 7),
                   .attempts = rows.get<std::int64_t>(row, 8),
                   .error = rows.get<std::string>(row, 9),
                   .stored_at = time_at(rows, row, 10),
                   .due_at = time_or_none(rows, row, 11),
                   .sent = rows.get<bool>(row, 12),
                   .refused = rows.at(row, 13) ? std::optional(rows.get<std::int64_t>(row, 13)) : std::nullopt});
  }
  return all;
}

RetryCounts Admin::count_retries(const RetryFilter& filter) {
  const Rows rows = session_->ask(
      "SELECT count(*) FILTER (WHERE c.has_entry AND c.due_at > clock_timestamp()), "
      "count(*) FILTER (WHERE c.has_entry AND c.due_at <= clock_timestamp()), "
      "count(*) FILTER (WHERE c.due_at = 'infinity'), count(*) FILTER (WHERE c.due_at < 'infinity' AND NOT c.has_entry) "
      "FROM (SELECT r.due_at, " +
          kHasEntry + " AS has_entry FROM retry r WHERE" + kOfFilter + ") c",
      arguments_of(filter));
  return {rows.get<std::int64_t>(0, 0), rows.get<std::int64_t>(0, 1), rows.get<std::int64_t>(0, 2),
          rows.get<std::int64_t>(0, 3)};
}

std::int64_t Admin::retry_now(const RetryFilter& filter, bool also_sent) {
  const std::string not_due = "r.due_at > clock_timestamp() AND r.due_at < 'infinity' AND " + kHasEntry;
  const std::string sent = "r.due_at < 'infinity' AND NOT " + kHasEntry;
  const std::string which = filter.number ? "r.due_at < 'infinity'"
                            : also_sent   ? "((" + not_due + ") OR (" + sent + "))"
                                          : not_due;
  std::int64_t all = 0;
  for (;;) {
    const auto some = static_cast<std::int64_t>(
        session_
            ->ask(
                "WITH old AS MATERIALIZED (SELECT r.id, r.due_at FROM retry r WHERE" + std::string(kOfFilter) + "AND " +
                    which + " ORDER BY r.id LIMIT " + std::to_string(kRetriesAtOnce) +
                    " FOR UPDATE), gone AS (DELETE FROM retry_due d USING old WHERE d.due_at = old.due_at AND d.id = old.id), "
                    "now AS (UPDATE retry r SET due_at = clock_timestamp() FROM old WHERE r.id = old.id "
                    "RETURNING r.due_at, r.id, r.shard) "
                    "INSERT INTO retry_due (due_at, id, shard) SELECT due_at, id, shard FROM now",
                arguments_of(filter))
            .affected());
    all += some;
    if (some < kRetriesAtOnce) return all;
  }
}

std::int64_t Admin::drop_retries(const RetryFilter& filter) {
  std::int64_t all = 0;
  for (;;) {
    const Rows rows = session_->ask(
        "WITH gone AS (DELETE FROM retry WHERE id IN (SELECT r.id FROM retry r WHERE" + std::string(kOfFilter) +
            "ORDER BY r.id LIMIT " + std::to_string(kRetriesAtOnce) +
            " FOR UPDATE) RETURNING *), dead_now AS ("
            "INSERT INTO dead (handler, slot, incarnation, record_offset, message_id, reason, error, attempts, "
            "record_timestamp, record_key, record_payload, header_names, header_values) "
            "SELECT handler, slot, incarnation, record_offset, message_id, 'dropped', "
            "'an operator dropped its retry; the last error: ' || error, attempts, record_timestamp, record_key, "
            "record_payload, header_names, header_values FROM gone ORDER BY id "
            // The record was a dead letter before, whose replay is lost or has not arrived yet.
            "ON CONFLICT (handler, slot, incarnation, record_offset) DO UPDATE SET reason = excluded.reason, "
            "error = excluded.error, attempts = excluded.attempts, died_at = excluded.died_at, replayed_at = NULL) "
            "SELECT count(*) FROM gone",
        arguments_of(filter));
    const auto some = rows.get<std::int64_t>(0, 0);
    all += some;
    if (some < kRetriesAtOnce) return all;
  }
}

}  // namespace turnstile::postgres
