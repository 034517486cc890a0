#include "turnstile/postgres/rewind.hpp"

#include "admin/session.hpp"

namespace turnstile::postgres {

namespace {

IdFate fate_of(std::string_view text) {
  if (text == "took_effect") return IdFate::took_effect;
  if (text == "stored") return IdFate::stored;
  if (text == "in_doubt") return IdFate::in_doubt;
  if (text == "dead") return IdFate::dead;
  return text == "killed" ? IdFate::killed : IdFate::none;
}

}  // namespace

void Admin::require_owner() {
  const Rows rows = session_->ask(
      "SELECT pg_has_role(relowner, 'USAGE'), pg_get_userbyid(relowner) FROM pg_class WHERE oid = 'handler'::regclass");
  if (rows.get<bool>(0, 0)) return;
  throw_needs_owner({.sqlstate = "", .message = "the tables belong to " + rows.get<std::string>(0, 1)},
                    session_->schema(), session_->user());
}

HandledTopic Admin::handled_topic(const std::string& group, const std::string& topic, const std::string& handler) {
  return session_->transact(Patience{}, [&] {
    HandledTopic found;
    const Rows rows = session_->run(
        "SELECT f.partition, f.incarnation, "
        "       (SELECT CASE p.incarnation WHEN f.incarnation THEN p.next_offset ELSE 0 END FROM progress p "
        "         WHERE p.slot = f.slot AND p.handler = (SELECT id FROM handler WHERE name = $3::text)) "
        "  FROM fence f WHERE f.consumer_group = $1::text AND f.topic = $2::text ORDER BY f.partition",
        {group, topic, handler});
    for (std::size_t row = 0; row < rows.size(); ++row) {
      auto& partition = found.partitions.emplace_back();
      partition.partition = rows.get<std::int32_t>(row, 0);
      partition.incarnation = rows.get<std::int32_t>(row, 1);
      if (rows.at(row, 2)) partition.settled = rows.get<Offset>(row, 2);
    }
    const Rows times = session_->run(
        "SELECT " + microseconds_of("clock_timestamp()") + ", " +
            microseconds_of(
                "(SELECT z.forgotten_before FROM horizon z JOIN handler h ON h.id = z.handler WHERE h.name = $1::text)"),
        {handler});
    found.now = time_at(times, 0, 0);
    found.all_since = time_or_none(times, 0, 1);
    return found;
  });
}

std::vector<IdFate> Admin::fates(const std::string& handler, std::span<const MessageId> ids) {
  std::string list = "{";
  for (const auto& id : ids) list += (list.size() > 1 ? "," : "") + id.text();
  const Rows rows = session_->ask(
      "SELECT CASE WHEN EXISTS (SELECT FROM inbox i WHERE i.handler = o.id AND i.id = e.id) THEN 'took_effect' "
      "            WHEN EXISTS (SELECT FROM retry r WHERE r.handler = o.id AND r.message_id = e.id) THEN 'stored' "
      "            WHEN EXISTS (SELECT FROM claim c WHERE c.handler = o.id AND c.id = e.id AND "
      "                           (c.state = 'parked' OR (c.state = 'claimed' AND NOT (" +
          not_begun +
          ")))) THEN 'in_doubt' "
          "            ELSE (SELECT CASE WHEN bool_or(d.reason = 'killed_process') THEN 'killed' "
          "                              WHEN bool_or(d.reason = 'dropped' AND d.replayed_at IS NULL) THEN 'stored' "
          "                              ELSE 'dead' END "
          "                    FROM dead d WHERE d.handler = o.id AND d.message_id = e.id HAVING count(*) > 0) END "
          "  FROM unnest($2::uuid[]) WITH ORDINALITY AS e (id, n) "
          "  LEFT JOIN handler o ON o.name = $1::text ORDER BY e.n",
      {handler, list + "}"});
  std::vector<IdFate> fates;
  for (std::size_t row = 0; row < rows.size(); ++row) fates.push_back(fate_of(text_or_empty(rows, row, 0)));
  return fates;
}

}  // namespace turnstile::postgres
