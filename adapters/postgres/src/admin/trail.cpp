#include "admin/session.hpp"

namespace turnstile::postgres {

namespace {

// now() is the same for all rows of a transaction. Numbered requests have their responses elsewhere, by number.
const std::string kOutbox =
    "WITH took AS (SELECT seen_at FROM inbox WHERE id = $1::uuid AND handler IN (SELECT id FROM handler)) "
    "SELECT message_id, topic, CASE WHEN shard = -1 THEN 'refused' ELSE 'waiting' END, " +
    microseconds_of("written_at") +
    ", NULL::bigint, message_id <> $1::uuid FROM outbox "
    "WHERE message_id = $1::uuid OR written_at IN (SELECT seen_at FROM took) "
    "UNION ALL SELECT message_id, topic, 'scheduled', " +
    microseconds_of("written_at") + ", " + microseconds_of("due_at") +
    ", message_id <> $1::uuid FROM scheduled "
    "WHERE message_id = $1::uuid OR written_at IN (SELECT seen_at FROM took) "
    "UNION ALL SELECT message_id, topic, "
    "  CASE WHEN due_at = 'infinity' THEN 'behind its key, for attempt ' WHEN EXISTS (SELECT FROM retry_due d "
    "         WHERE d.due_at = retry.due_at AND d.id = retry.id) THEN 'stored for attempt ' ELSE 'sent for attempt ' END "
    "       || attempts + 1, " +
    microseconds_of("stored_at") + ", " + microseconds_of("CASE WHEN due_at < 'infinity' THEN due_at END") +
    ", false FROM retry WHERE message_id = $1::uuid LIMIT 50";

}  // namespace

MessageTrail Admin::trail(const MessageId& id) {
  return session_->transact(Patience{}, [&] {
    MessageTrail trail;
    const Rows replies =
        session_->run("SELECT h.name, " + microseconds_of("r.replied_at") +
                          ", octet_length(r.body)::bigint FROM handler h JOIN response r ON r.handler = h.id "
                          "AND r.id = $1::uuid ORDER BY 1",
                      {id.text()});
    for (std::size_t row = 0; row < replies.size(); ++row)
      trail.replies.push_back(
          {replies.get<std::string>(row, 0), time_at(replies, row, 1), replies.get<std::int64_t>(row, 2)});
    const Rows outbox = session_->run(kOutbox, {id.text()});
    for (std::size_t row = 0; row < outbox.size(); ++row) {
      trail.outbox.push_back({.id = id_at(outbox, row, 0),
                              .topic = outbox.get<std::string>(row, 1),
                              .state = outbox.get<std::string>(row, 2),
                              .written_at = time_at(outbox, row, 3),
                              .due_at = time_or_none(outbox, row, 4),
                              .same_transaction = outbox.get<bool>(row, 5)});
    }
    return trail;
  });
}

}  // namespace turnstile::postgres
