#include "database.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "text.hpp"
#include "turnstile/postgres/store.hpp"
#include "turnstile/replay.hpp"

namespace turnstile::cli {

postgres::Admin open_admin(const Config& config) {
  const PostgresSettings settings = require_postgres(config);
  postgres::open_store(settings)->check_schema();
  return postgres::Admin(settings);
}

std::string place(const postgres::GroupPartition& from, Offset offset) {
  if (from.at.topic.empty()) return fmt::format("a partition that is no longer known, @{}", offset);
  return fmt::format("{} (group {})", one_line(to_string(TopicPartitionOffset{from.at, offset}), 300),
                     one_line(from.group, 80));
}

std::string how_to_settle(const postgres::DeadSummary& dead) {
  const std::string decide = fmt::format("turnstile dlq replay {} --", dead.number);
  if (!dead.replay_token) {
    const auto at = to_string(TopicPartitionOffset{dead.from.at, dead.offset});
    return fmt::format(
        "it may have been published: an earlier build of turnstile began its replay, and did not record its end. Unless "
        "another operator replays it now: look in {} for a record with the headers {}: {} and {}: {} that no other replay of "
        "this place has published. If there is one: {}done; if there is none: {}again",
        dead.from.at.topic, kReplayedFrom, at, kReplayedFor, one_line(dead.handler, 200), decide, decide);
  }
  return fmt::format(
      "it may have been published: its replay began at {}, and its end was not recorded. Unless another operator replays it "
      "now: look in {} for a record with the header {}: {}. If there is one: {}done={}; if there is none: {}again={}",
      when(*dead.replay_began_at), dead.from.at.topic, kReplayToken, *dead.replay_token, decide, *dead.replay_token,
      decide, *dead.replay_token);
}

namespace {

void require_one_of(const std::vector<std::string>& names, const std::string& name, const std::string& problem) {
  if (std::find(names.begin(), names.end(), name) != names.end()) return;
  std::string known;
  for (const auto& other : names) known += (known.empty() ? "" : ", ") + one_line(other, 80);
  throw UsageError(problem + "; " + (known.empty() ? "there is none at all" : "there are: " + known));
}

}  // namespace

void require_handler(postgres::Admin& admin, const std::string& handler) {
  require_one_of(admin.handlers(), handler,
                 fmt::format("no handler \"{}\" has ever registered here", one_line(handler, 80)));
}

void require_topic(postgres::Admin& admin, const std::string& topic) {
  require_one_of(admin.topics(), topic,
                 fmt::format("no consumer has ever read a topic \"{}\" with this database", one_line(topic, 80)));
}

}  // namespace turnstile::cli
