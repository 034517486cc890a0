// Decides which offsets are committed to Kafka.

#include "engine/scheduler.hpp"

namespace turnstile::detail {

namespace {

using std::chrono::steady_clock;

/// After this time without a result, an offset is passed to Kafka again.
constexpr std::chrono::seconds kCommitForgotten{30};

}  // namespace

std::vector<TopicPartitionOffset> Scheduler::positions_to_commit() {
  const std::lock_guard lock(mutex_);
  const SteadyTime now = steady_clock::now();
  std::vector<TopicPartitionOffset> moved;
  for (const auto& lane : lanes_) {
    if (lane->replaced) continue;
    // Also if no message has come yet: the last owner may have died between the commits of its database and of Kafka.
    const auto position = lane->lane.position() ? lane->lane.position() : lane->start;
    if (!position || position == lane->committed) continue;
    // Kafka's offset tells the next owner which messages were settled. That owner starts at the database's watermark in
    // any case.
    if (lane->place.in_doubt && *position < lane->place.in_doubt->below) continue;
    if (position == lane->committing && now - lane->committing_since < kCommitForgotten) continue;
    lane->committing = position;
    lane->committing_since = now;
    moved.push_back({lane->place.at, *position});
  }
  return moved;
}

void Scheduler::commit_ended(const TopicPartitionOffset& position, bool committed) {
  const std::lock_guard lock(mutex_);
  for (const auto& lane : lanes_) {
    if (lane->place.at != position.at) continue;
    if (committed) lane->committed = position.offset;
    if (lane->committing == position.offset) lane->committing.reset();
  }
}

}  // namespace turnstile::detail
