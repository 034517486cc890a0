#include "admin/dead_rows.hpp"

#include "wire/text.hpp"

namespace turnstile::postgres {

const std::string& select_summary() {
  static const std::string in_doubt(kInDoubt), as_begun(kAsBegun);
  static const std::string sql =
      "SELECT d.id, coalesce(h.name, ''), f.consumer_group, f.topic, f.partition, d.record_offset, d.message_id, d.reason, "
      "       d.error, d.attempts, " +
      microseconds_of("d.died_at") + ", " + microseconds_of("CASE WHEN NOT " + in_doubt + " THEN d.replayed_at END") +
      ", d.dead_topic, d.dead_partition, d.dead_offset, coalesce(" + in_doubt + ", false), " +
      microseconds_of("CASE WHEN " + in_doubt + " AND isfinite(d.replayed_at) THEN d.replayed_at - " + as_begun +
                      " END") +
      // With T, so that a cursor is one word.
      ", d.replayed_at::text, regexp_replace(d.died_at::text, ' ', 'T'), d.edits, h.consumer_group";
  return sql;
}

const std::string& is_damaged() {
  static const std::string sql = "(NOT " + std::string(kTimeIsKnown) +
                                 " OR cardinality(d.header_names) <> cardinality(d.header_values) OR " +
                                 std::string(kLacksName) + ")";
  return sql;
}

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
  dead.cursor = rows.get<std::string>(row, 18) + "/" + rows.get<std::string>(row, 0);
  dead.edits = rows.get<int>(row, 19);
  if (const auto group = rows.at(row, 20)) dead.only_group = std::string(*group);
  return dead;
}

Arguments as_seen(const DeadSummary& seen) {
  return {std::to_string(seen.number), seen.replay_mark, std::to_string(seen.edits)};
}

std::optional<TopicPartitionOffset> dead_letter_at(const Rows& rows, std::size_t row) {
  if (!rows.at(row, 12)) return std::nullopt;
  TopicPartitionOffset at{{rows.get<std::string>(row, 12), 0}, 0};
  if (rows.at(row, 13)) at.at.partition = rows.get<std::int32_t>(row, 13);
  if (rows.at(row, 14)) at.offset = rows.get<Offset>(row, 14);
  return at;
}

}  // namespace turnstile::postgres
