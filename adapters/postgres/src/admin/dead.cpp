#include <sstream>

#include "admin/dead_rows.hpp"
#include "wire/text.hpp"

namespace turnstile::postgres {

namespace {

/// There are few waiting dead letters. If there are many, a missing count is not the main problem.
constexpr Patience kLooking{10'000};

/// "UUID,UUID". Empty for NULL.
std::vector<MessageId> ids_at(const Rows& rows, std::size_t row, std::size_t column) {
  std::vector<MessageId> ids;
  std::istringstream list(text_or_empty(rows, row, column));
  for (std::string id; std::getline(list, id, ',');) ids.push_back(MessageId::from(id));
  return ids;
}

}  // namespace

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
    const Rows in_doubt = session_->run("SELECT d.id, count(*) OVER () FROM dead d WHERE " + std::string(kInDoubt) +
                                        " ORDER BY d.id LIMIT 5");
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

bool Admin::replay_once(const DeadSummary& seen, const std::function<bool(const DeadSummary& begun)>& publish) {
  const Rows marked = session_->ask(
      "UPDATE dead d SET replayed_at = clock_timestamp() + " + std::string(kAsBegun) + std::string(kAsSeen) +
          "RETURNING " + microseconds_of("d.replayed_at - " + std::string(kAsBegun)) + ", d.replayed_at::text",
      as_seen(seen));
  if (marked.empty()) return false;
  DeadSummary begun = seen;
  begun.replayed_at.reset();
  begun.replay_in_doubt = true;
  set_begun(begun, time_at(marked, 0, 0));
  begun.replay_mark = marked.get<std::string>(0, 1);
  return session_->transact(Patience{}, [&] {
    // Until this transaction ends, no other transaction settles or replaces the replay.
    if (session_->run("SELECT 1 FROM dead d" + std::string(kAsSeen) + "FOR UPDATE", as_seen(begun)).empty())
      return false;
    if (publish(begun))
      session_->run("UPDATE dead d SET replayed_at = clock_timestamp()" + std::string(kAsSeen), as_seen(begun));
    else
      session_->run("UPDATE dead SET replayed_at = $2::timestamptz WHERE id = $1::bigint",
                    {std::to_string(seen.number), seen.replay_mark});
    return true;
  });
}

bool Admin::settle_replay(const DeadSummary& seen) {
  return session_
             ->ask("UPDATE dead d SET replayed_at = clock_timestamp()" + std::string(kAsSeen) + "AND " +
                       std::string(kInDoubt),
                   as_seen(seen))
             .affected() > 0;
}

bool Admin::mark_replayed(const DeadSummary& seen, const std::function<void()>& publish) {
  return session_->transact(Patience{}, [&] {
    const Rows marked =
        session_->run("UPDATE dead d SET replayed_at = clock_timestamp()" + std::string(kAsSeen), as_seen(seen));
    if (marked.affected() == 0) return false;
    publish();
    return true;
  });
}

}  // namespace turnstile::postgres
