#include "inbox/outbox.hpp"

#include "admin/session.hpp"
#include "wire/text.hpp"

namespace turnstile::postgres {

namespace {

/// Of key, payload and headers.
std::string bytes_of_record() {
  const auto of_list = [](const std::string& list) {
    return "(SELECT coalesce(sum(octet_length(part)), 0) FROM unnest(" + list + ") part)";
  };
  return "coalesce(octet_length(record_key), 0) + coalesce(octet_length(record_payload), 0) + " +
         of_list("header_names") + " + " + of_list("header_values");
}

}  // namespace

OutboxStats Admin::outbox() {
  return session_->transact(Patience{}, [&] {
    const Rows rows = session_->run(
        "SELECT count(*) FILTER (WHERE shard >= 0), " + microseconds_of("min(written_at) FILTER (WHERE shard >= 0)") +
        ", count(*) FILTER (WHERE shard = -1), " + microseconds_of("clock_timestamp()") + " FROM outbox");
    const Rows scheduled = session_->run("SELECT count(*), " + microseconds_of("min(due_at)") + " FROM scheduled");
    OutboxStats stats{.scheduled = scheduled.get<std::int64_t>(0, 0),
                      .next_due = time_or_none(scheduled, 0, 1),
                      .waiting = rows.get<std::int64_t>(0, 0),
                      .oldest = time_or_none(rows, 0, 1),
                      .refused = rows.get<std::int64_t>(0, 2),
                      .relays = {},
                      .now = time_at(rows, 0, 3)};
    const Rows relays = session_->run(
        "SELECT DISTINCT owner FROM outbox_relay WHERE owner IS NOT NULL AND expires_at > clock_timestamp() ORDER BY 1");
    for (std::size_t row = 0; row < relays.size(); ++row) stats.relays.push_back(relays.get<std::string>(row, 0));
    return stats;
  });
}

std::vector<RefusedRecord> Admin::refused(std::int64_t most) {
  const Rows rows =
      session_->ask("SELECT id, topic, record_key, " + bytes_of_record() + ", refused, " +
                        microseconds_of("written_at") + " FROM outbox WHERE shard = -1 ORDER BY id LIMIT $1::bigint",
                    {std::to_string(most)});
  std::vector<RefusedRecord> all;
  for (std::size_t row = 0; row < rows.size(); ++row) {
    all.push_back({.number = rows.get<std::int64_t>(row, 0),
                   .topic = rows.get<std::string>(row, 1),
                   .key = bytes_at(rows, row, 2),
                   .bytes = rows.get<std::int64_t>(row, 3),
                   .why = rows.get<std::string>(row, 4),
                   .written_at = time_at(rows, row, 5)});
  }
  return all;
}

std::vector<ScheduledRecord> Admin::scheduled(const std::optional<std::string>& topic, std::int64_t most) {
  const Rows rows =
      session_->ask("SELECT id, message_id, topic, record_key, " + bytes_of_record() + ", " +
                        microseconds_of("due_at") + ", " + microseconds_of("written_at") +
                        " FROM scheduled WHERE $1::text IS NULL OR topic = $1 ORDER BY due_at, id LIMIT $2::bigint",
                    {topic, std::to_string(most)});
  std::vector<ScheduledRecord> all;
  for (std::size_t row = 0; row < rows.size(); ++row) {
    all.push_back({.number = rows.get<std::int64_t>(row, 0),
                   .id = id_at(rows, row, 1),
                   .topic = rows.get<std::string>(row, 2),
                   .key = bytes_at(rows, row, 3),
                   .bytes = rows.get<std::int64_t>(row, 4),
                   .due_at = time_at(rows, row, 5),
                   .written_at = time_at(rows, row, 6)});
  }
  return all;
}

std::int64_t Admin::cancel_scheduled(const MessageId& id) {
  return static_cast<std::int64_t>(
      session_->ask("DELETE FROM scheduled WHERE message_id = $1::uuid", {id.text()}).affected());
}

std::int64_t Admin::retry_refused(std::optional<std::int64_t> number) {
  return session_->transact(Patience{}, [&] {
    const Rows rows = session_->run(
        "SELECT id, record_key FROM outbox WHERE shard = -1 AND ($1::bigint IS NULL OR id = $1) ORDER BY id FOR UPDATE",
        {number ? std::optional(std::to_string(*number)) : std::nullopt});
    for (std::size_t row = 0; row < rows.size(); ++row) {
      const auto id = rows.get<std::int64_t>(row, 0);
      const auto key = bytes_at(rows, row, 1);
      const ports::OutboxShard shard =
          key ? shard_of(*key) : static_cast<ports::OutboxShard>(id % ports::kOutboxShards);
      session_->run("UPDATE outbox SET shard = $2::smallint, refused = NULL WHERE shard = -1 AND id = $1::bigint",
                    {std::to_string(id), std::to_string(shard)});
    }
    return static_cast<std::int64_t>(rows.size());
  });
}

bool Admin::drop_refused(std::int64_t number) {
  return session_->ask("DELETE FROM outbox WHERE shard = -1 AND id = $1::bigint", {std::to_string(number)}).affected() >
         0;
}

}  // namespace turnstile::postgres
