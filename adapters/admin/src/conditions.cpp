#include "conditions.hpp"

#include <chrono>

namespace turnstile::admin {

namespace {

using namespace std::chrono_literals;

/// A thread may take this long for one round. The polling thread waits longest in a rebalance: for handlers
/// (drain_timeout, which the status adds), then several times 5 s for Kafka and PostgreSQL.
constexpr std::chrono::milliseconds kLongestRound = 60s;

/// A new coordinator of the group takes a few seconds to begin, which is no reason to send no traffic.
constexpr std::chrono::milliseconds kSilence = 10s;

std::string seconds_text(std::chrono::milliseconds time) { return std::to_string(time.count() / 1'000) + " s"; }

}  // namespace

std::vector<std::string> why_not_healthy(const Status& status) {
  std::vector<std::string> why;
  const Health& health = status.health;
  if (!health.is_live()) why.push_back("the consumer is halted: " + health.reason);
  for (const ThreadStatus& thread : status.threads) {
    if (thread.quiet <= thread.longest_round + kLongestRound) continue;
    why.push_back("the " + thread.name + " thread has made no progress for " + seconds_text(thread.quiet));
  }
  return why;
}

std::vector<std::string> why_not_ready(const Status& status) {
  std::vector<std::string> why;
  const Health& health = status.health;
  const bool at_work = health.state == Health::State::running || health.state == Health::State::waiting;
  if (!at_work) {
    why.push_back("the consumer is " + std::string(to_text(health.state)) +
                  (health.reason.empty() ? "" : ": " + health.reason));
    return why;
  }
  if (status.kafka_silent >= kSilence) {
    why.push_back("Kafka has not answered for " + seconds_text(*status.kafka_silent) +
                  ": the consumer may have lost its membership of the group");
  }
  if (!status.in_group) why.push_back("the consumer is not a member of its group yet");
  if (status.token_log && !status.token_log->available) why.push_back("the token log cannot be reached");
  if (!health.reason.empty()) why.push_back(health.reason);
  return why;
}

}  // namespace turnstile::admin
