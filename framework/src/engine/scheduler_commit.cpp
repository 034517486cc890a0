// Decides which offset of a partition is committed to Kafka, and when.

#include "engine/scheduler.hpp"

namespace turnstile::detail {
namespace {

using std::chrono::steady_clock;

/// After this time without a result, an offset is passed to Kafka again.
constexpr std::chrono::seconds kCommitForgotten{30};

/// The lane's position, because every message below it is settled. Before the first message it is the offset where the
/// partition was started: the last owner may have died between the commits of its database and of Kafka.
std::optional<Offset> offset_to_commit(const LaneState& lane) {
  if (lane.replaced) return std::nullopt;
  // The lane is not claimed yet, or its claim failed after its start was known: what is in doubt is not known.
  if (lane.topic.needs_store() && !lane.topic.fails_open() && !lane.place.fence) return std::nullopt;
  const auto position = lane.lane.position() ? lane.lane.position() : lane.start;
  // Kafka's offset tells the next owner which messages were settled. That owner starts at the database's watermark in
  // any case.
  if (position && lane.place.in_doubt && *position < lane.place.in_doubt->below) return std::nullopt;
  return position;
}

}  // namespace

std::vector<TopicPartitionOffset> Scheduler::positions_to_commit() {
  const std::lock_guard lock(mutex_);
  const SteadyTime now = steady_clock::now();
  std::vector<TopicPartitionOffset> moved;
  for (const auto& lane : lanes_) {
    const auto offset = offset_to_commit(*lane);
    if (!offset || offset == lane->committed) continue;
    if (offset == lane->committing && now - lane->committing_since < kCommitForgotten) continue;
    lane->committing = offset;
    lane->committing_since = now;
    moved.push_back({lane->place.at, *offset});
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
