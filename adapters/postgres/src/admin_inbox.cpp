#include "admin_session.hpp"

namespace turnstile::postgres {

namespace {

// Counting reads the whole inbox; a person who asks for it can wait, or interrupt it.
constexpr Patience kCounting{600'000, 5'000};

GroupPartition partition_at(const Rows& rows, std::size_t row, std::size_t column) {
  GroupPartition of;
  of.group = text_or_empty(rows, row, column);
  of.at.topic = text_or_empty(rows, row, column + 1);
  if (rows.at(row, column + 2)) of.at.partition = rows.get<std::int32_t>(row, column + 2);
  return of;
}

std::vector<HandlerRows> handler_rows(const Rows& rows) {
  std::vector<HandlerRows> handlers;
  for (std::size_t row = 0; row < rows.size(); ++row) {
    handlers.push_back({rows.get<std::string>(row, 0), rows.get<std::int64_t>(row, 1), time_or_none(rows, row, 2),
                        time_or_none(rows, row, 3), rows.get<std::int64_t>(row, 4)});
  }
  return handlers;
}

std::vector<PartitionState> partition_states(const Rows& rows) {
  std::vector<PartitionState> states;
  for (std::size_t row = 0; row < rows.size(); ++row) {
    PartitionState state;
    state.of = partition_at(rows, row, 0);
    state.epoch = Epoch{rows.get<std::int64_t>(row, 3)};
    state.incarnation = rows.get<std::int32_t>(row, 4);
    state.claimed_at = time_at(rows, row, 5);
    if (rows.at(row, 6)) state.watermark = rows.get<Offset>(row, 6);
    state.moved_at = time_or_none(rows, row, 7);
    states.push_back(std::move(state));
  }
  return states;
}

}  // namespace

Admin::Admin(const PostgresSettings& settings) : session_(std::make_unique<Session>(settings)) {}
Admin::~Admin() = default;
Admin::Admin(Admin&&) noexcept = default;
Admin& Admin::operator=(Admin&&) noexcept = default;

std::vector<SeenMessage> Admin::inspect(const MessageId& id, const std::optional<std::string>& handler) {
  // By each handler's id and the message's: the primary key answers, however large the inbox.
  const Rows rows = session_->ask(
      "SELECT h.name, f.consumer_group, f.topic, f.partition, i.record_offset, "
      "       (extract(epoch FROM i.seen_at) * 1000000)::bigint, i.fingerprint "
      "FROM handler h JOIN inbox i ON i.handler = h.id AND i.id = $1::uuid LEFT JOIN fence f ON f.slot = i.slot "
      "WHERE $2::text IS NULL OR h.name = $2 ORDER BY h.name",
      {id.text(), handler});
  std::vector<SeenMessage> seen;
  for (std::size_t row = 0; row < rows.size(); ++row) {
    SeenMessage message{rows.get<std::string>(row, 0), partition_at(rows, row, 1), rows.get<Offset>(row, 4),
                        time_at(rows, row, 5), std::nullopt};
    if (rows.at(row, 6)) message.fingerprint = rows.get<std::int64_t>(row, 6);
    seen.push_back(std::move(message));
  }
  return seen;
}

InboxStats Admin::stats() {
  return session_->transact(kCounting, [this] {
    InboxStats stats;
    stats.handlers = handler_rows(session_->run(
        "SELECT h.name, coalesce(i.n, 0), i.oldest, i.newest, "
        "       (SELECT count(*) FROM dead d WHERE d.handler = h.id AND d.replayed_at IS NULL) "
        "FROM handler h LEFT JOIN (SELECT handler, count(*) AS n, "
        "    (extract(epoch FROM min(seen_at)) * 1000000)::bigint AS oldest, "
        "    (extract(epoch FROM max(seen_at)) * 1000000)::bigint AS newest FROM inbox GROUP BY handler) i "
        "  ON i.handler = h.id ORDER BY h.name"));
    stats.partitions = partition_states(session_->run(
        "SELECT f.consumer_group, f.topic, f.partition, f.epoch, f.incarnation, "
        "       (extract(epoch FROM f.claimed_at) * 1000000)::bigint, w.watermark, "
        "       (extract(epoch FROM w.moved_at) * 1000000)::bigint "
        "FROM fence f LEFT JOIN watermark w USING (slot) ORDER BY f.consumer_group, f.topic, f.partition"));
    const Rows size = session_->run(
        "SELECT coalesce(sum(pg_table_size(relid)), 0)::bigint, coalesce(sum(pg_indexes_size(relid)), 0)::bigint "
        "FROM (SELECT 'inbox'::regclass AS relid UNION SELECT inhrelid FROM pg_inherits WHERE inhparent = 'inbox'::regclass) t");
    stats.table_bytes = size.get<std::int64_t>(0, 0);
    stats.index_bytes = size.get<std::int64_t>(0, 1);
    return stats;
  });
}

std::vector<std::string> Admin::handlers() {
  const Rows rows = session_->ask("SELECT name FROM handler ORDER BY name");
  std::vector<std::string> names;
  for (std::size_t row = 0; row < rows.size(); ++row) names.push_back(rows.get<std::string>(row, 0));
  return names;
}

bool Admin::forget(const MessageId& id, const std::string& handler) {
  const Rows rows = session_->ask(
      "DELETE FROM inbox WHERE handler = (SELECT h.id FROM handler h WHERE h.name = $1) AND id = $2::uuid",
      {handler, id.text()});
  return rows.affected() > 0;
}

}  // namespace turnstile::postgres
