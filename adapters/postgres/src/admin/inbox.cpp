#include "admin/session.hpp"

namespace turnstile::postgres {

namespace {

// Counting reads the whole inbox. The operator can wait for it, or interrupt it.
constexpr Patience kCounting{600'000};

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
                        time_or_none(rows, row, 3), rows.get<std::int64_t>(row, 4), rows.get<std::int64_t>(row, 5),
                        rows.get<std::int64_t>(row, 6), rows.get<std::int64_t>(row, 7),
                        rows.get<std::int64_t>(row, 8)});
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
  // By each handler's id and the message's id: the primary key finds the row in an inbox of any size.
  const Rows rows = session_->ask(
      "SELECT h.name, f.consumer_group, f.topic, f.partition, i.record_offset, " + microseconds_of("i.seen_at") +
          ", i.fingerprint, i.slot = 0 "
          "FROM handler h JOIN inbox i ON i.handler = h.id AND i.id = $1::uuid LEFT JOIN fence f ON f.slot = i.slot "
          "WHERE $2::text IS NULL OR h.name = $2 ORDER BY h.name",
      {id.text(), handler});
  std::vector<SeenMessage> seen;
  for (std::size_t row = 0; row < rows.size(); ++row) {
    SeenMessage message{rows.get<std::string>(row, 0),
                        partition_at(rows, row, 1),
                        rows.get<Offset>(row, 4),
                        time_at(rows, row, 5),
                        std::nullopt,
                        rows.get<bool>(row, 7)};
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
        "       (SELECT count(*) FROM dead d WHERE d.handler = h.id AND d.replayed_at IS NULL), "
        "       coalesce(c.claimed, 0), coalesce(c.unknown, 0), coalesce(c.failed, 0), coalesce(c.parked, 0) "
        "FROM handler h LEFT JOIN (SELECT handler, count(*) AS n, " +
        microseconds_of("min(seen_at)") + " AS oldest, " + microseconds_of("max(seen_at)") +
        " AS newest FROM inbox GROUP BY handler) i "
        "  ON i.handler = h.id "
        "LEFT JOIN (SELECT handler, count(*) FILTER (WHERE state = 'claimed' AND (expires_at >= clock_timestamp() OR " +
        not_begun +
        ")) AS claimed, "
        "    count(*) FILTER (WHERE state = 'claimed' AND expires_at < clock_timestamp() AND NOT (" +
        not_begun +
        ")) AS unknown, "
        "    count(*) FILTER (WHERE state = 'failed') AS failed, count(*) FILTER (WHERE state = 'parked') AS parked "
        "    FROM claim GROUP BY handler) c ON c.handler = h.id ORDER BY h.name"));
    stats.partitions = partition_states(session_->run(
        "SELECT f.consumer_group, f.topic, f.partition, f.epoch, f.incarnation, " + microseconds_of("f.claimed_at") +
        ", w.watermark, " + microseconds_of("w.moved_at") +
        " FROM fence f LEFT JOIN watermark w USING (slot) ORDER BY f.consumer_group, f.topic, f.partition"));
    const Rows size = session_->run(
        "SELECT coalesce(sum(pg_table_size(relid)), 0)::bigint, coalesce(sum(pg_indexes_size(relid)), 0)::bigint "
        "FROM (SELECT 'inbox'::regclass AS relid UNION SELECT inhrelid FROM pg_inherits WHERE inhparent = 'inbox'::regclass) t");
    stats.table_bytes = size.get<std::int64_t>(0, 0);
    stats.index_bytes = size.get<std::int64_t>(0, 1);
    return stats;
  });
}

namespace {

std::vector<std::string> names_of(const Rows& rows) {
  std::vector<std::string> names;
  for (std::size_t row = 0; row < rows.size(); ++row) names.push_back(rows.get<std::string>(row, 0));
  return names;
}

}  // namespace

std::vector<std::string> Admin::handlers() { return names_of(session_->ask("SELECT name FROM handler ORDER BY name")); }

std::vector<std::string> Admin::topics() {
  return names_of(session_->ask("SELECT DISTINCT topic FROM fence ORDER BY topic"));
}

std::optional<std::int32_t> Admin::last_partition(const std::string& topic) {
  const Rows rows =
      session_->ask("SELECT partition FROM fence WHERE topic = $1::text ORDER BY partition DESC LIMIT 1", {topic});
  return rows.empty() ? std::nullopt : std::optional(rows.get<std::int32_t>(0, 0));
}

std::vector<ClaimedMessage> Admin::claims(const MessageId& id, const std::optional<std::string>& handler) {
  const Rows rows = session_->ask(
      "SELECT h.name, CASE WHEN c.state = 'claimed' AND c.expires_at < clock_timestamp() AND NOT (" + not_begun +
          ") THEN 'unknown' ELSE c.state END, "
          "       c.fence, " +
          microseconds_of("c.claimed_at") + ", " + microseconds_of("c.expires_at") +
          ", f.consumer_group, f.topic, f.partition, "
          "       c.record_offset, coalesce(c.error, ''), c.slot = 0 "
          "FROM handler h JOIN claim c ON c.handler = h.id AND c.id = $1::uuid LEFT JOIN fence f ON f.slot = c.slot "
          "WHERE $2::text IS NULL OR h.name = $2 ORDER BY h.name",
      {id.text(), handler});
  std::vector<ClaimedMessage> claims;
  for (std::size_t row = 0; row < rows.size(); ++row) {
    claims.push_back({rows.get<std::string>(row, 0), rows.get<std::string>(row, 1), rows.get<std::int64_t>(row, 2),
                      time_at(rows, row, 3), time_at(rows, row, 4), partition_at(rows, row, 5),
                      rows.get<Offset>(row, 8), rows.get<std::string>(row, 9), rows.get<bool>(row, 10)});
  }
  return claims;
}

std::optional<std::vector<std::int64_t>> Admin::unpark(const MessageId& id, const std::string& handler, bool done) {
  // A message in doubt counts as parked: the operator can decide before the message is delivered again.
  const std::string parked =
      "handler h WHERE h.name = $1 AND c.handler = h.id AND c.id = $2::uuid "
      "AND (c.state = 'parked' OR (c.state = 'claimed' AND c.expires_at < clock_timestamp()))";
  const std::string waiting =
      "h.name = $1 AND d.handler = h.id AND d.message_id = $2::uuid AND d.reason = 'unknown' AND d.replayed_at IS NULL";
  const std::string decide =
      done ? "WITH c AS (DELETE FROM claim c USING " + parked +
                 " RETURNING c.*) INSERT INTO inbox (handler, id, slot, record_offset, fingerprint) "
                 "SELECT handler, id, slot, record_offset, fingerprint FROM c ON CONFLICT DO NOTHING"
           : "UPDATE claim c SET state = 'failed', error = 'unparked, to run again' FROM " + parked;
  const std::string letters =
      done ? "UPDATE dead d SET replayed_at = clock_timestamp() FROM handler h WHERE " + waiting + " RETURNING d.id"
           : "SELECT d.id FROM dead d JOIN handler h ON " + waiting + " ORDER BY d.id";
  const Arguments of{handler, id.text()};
  return session_->transact(Patience{}, [&]() -> std::optional<std::vector<std::int64_t>> {
    if (session_->run(decide, of).affected() == 0) return std::nullopt;
    const Rows rows = session_->run(letters, of);
    std::vector<std::int64_t> numbers;
    for (std::size_t row = 0; row < rows.size(); ++row) numbers.push_back(rows.get<std::int64_t>(row, 0));
    return numbers;
  });
}

bool Admin::forget(const MessageId& id, const std::string& handler) {
  const Rows rows = session_->ask(
      "WITH h AS (SELECT id FROM handler WHERE name = $1), "
      "reply AS (DELETE FROM response USING h WHERE response.handler = h.id AND response.id = $2::uuid) "
      "DELETE FROM inbox USING h WHERE inbox.handler = h.id AND inbox.id = $2::uuid",
      {handler, id.text()});
  return rows.affected() > 0;
}

}  // namespace turnstile::postgres
