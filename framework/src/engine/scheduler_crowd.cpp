// When a message waits for a transaction that runs, to share the next one with what comes meanwhile.

#include <algorithm>

#include "engine/scheduler.hpp"

namespace turnstile::detail {

namespace {

/// A transaction that takes less than this for each message is short: it uses processors and does not wait.
constexpr double kShortNs = 5e6;
/// This few messages are not worth a transaction of their own while the processors are busy with others.
constexpr std::size_t kFewMessages = 16;
/// The part of a transaction's time that COMMIT takes where it waits for the disk. It was 0.84 to 0.89 with a disk that
/// takes 2 ms for a write, and 0.38 to 0.65 with a fast one, also on busy processors.
constexpr double kOfDisk = 0.8;
/// How long a disk may stand still.
constexpr double kStallNs = 50e6;

/// Few messages wait.
bool has_few(const LaneState& lane) { return lane.lane.unsettled() - lane.lane.running() < kFewMessages; }

/// COMMIT takes much longer than the other round trip of a transaction, so it waits for the disk. The handlers of some
/// messages take less, and partitions share a transaction, which is large enough for what waits meanwhile.
bool waits_for_disk(const TopicState& topic) {
  return topic.runner.can_share() && topic.runner.plan().batch >= kFewMessages &&
         topic.commit_ns > kOfDisk * topic.transaction_ns &&
         topic.handler_ns * static_cast<double>(kFewMessages) < topic.transaction_ns;
}

}  // namespace

/// More concurrent short transactions than processors only queue for processors. If that many run, a new message waits
/// for the first of them to end. It then shares the next transaction with the messages that came in the meantime. It
/// waits no longer than a short transaction takes, even if others start meanwhile.
/// Transactions of a few messages that wait for the disk only queue for it, so one of them is enough. A message waits
/// for it for as long as a disk may stand still.
bool Scheduler::is_crowded(LaneState& lane, SteadyTime now, Missing& missing) {
  const TopicState& topic = lane.topic;
  if (!topic.needs_store() || topic.mean_ns <= 0 || topic.mean_ns > kShortNs || !has_few(lane)) return false;
  const bool for_disk = waits_for_disk(topic);
  const std::chrono::nanoseconds most{static_cast<std::int64_t>(for_disk ? kStallNs : kShortNs)};
  std::size_t running = 0;
  SteadyTime first_over = SteadyTime::max();
  for (const WorkerSlot& slot : slots_) {
    if (slot.lanes.empty() || now - slot.since >= most) continue;
    const LaneState& other = *slot.lanes.front();
    const bool counts =
        for_disk ? waits_for_disk(other.topic) && other.lane.running() < kFewMessages : other.topic.needs_store();
    if (!counts) continue;
    ++running;
    first_over = std::min(first_over, slot.since + most);
  }
  if (running < (for_disk ? 1 : processors_)) return false;
  if (!lane.crowded_since) lane.crowded_since = now;
  const SteadyTime patience = *lane.crowded_since + most;
  if (now >= patience) return false;
  missing.until = std::min({missing.until, first_over, patience});
  return true;
}

}  // namespace turnstile::detail
