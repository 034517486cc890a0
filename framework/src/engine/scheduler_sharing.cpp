// Which lanes share a transaction. With few messages ready in each of several partitions, a transaction for each costs
// more than their handlers, and they wait for each other's COMMITs.

#include <algorithm>

#include "engine/scheduler.hpp"

namespace turnstile::detail {

namespace {

/// A lane with more waiting messages than this has a transaction of its own, which another worker can run meanwhile.
constexpr std::size_t kMostShared = 16;

/// After a failure a lane runs by itself until its units have their full size again: a failure costs the others a
/// rollback. So does a lane whose messages are recorded before they run, because one of them may have killed a process.
bool may_share(const LaneState& lane) {
  const Message* const oldest = lane.lane.oldest();
  const auto& suspicion = lane.place.suspicion;
  return oldest != nullptr && !(suspicion && suspicion->covers(oldest->offset())) && !lane.lane.has_suspects() &&
         lane.unit_most >= lane.topic.runner.plan().batch && lane.lane.unsettled() - lane.lane.running() <= kMostShared;
}

}  // namespace

/// Adds the messages of other lanes, as long as their handlers together take less time than the transaction's own
/// statements. More would wait for each other longer than for a COMMIT of their own.
void Scheduler::join_others(LaneUnit& unit, SteadyTime now, std::size_t most) {
  const TopicState& topic = unit.lane->topic;
  if (!topic.runner.can_share() || topic.transaction_ns <= 0 || unit.works.empty() || unit.works.size() > kMostShared ||
      unit.works.front().attempt > 1 || !may_share(*unit.lane))
    return;
  if (topic.handler_ns > 0) most = std::min(most, static_cast<std::size_t>(topic.transaction_ns / topic.handler_ns));
  std::size_t taken = unit.works.size();
  for (const LanePtr& lane : lanes_) {
    if (taken >= most) return;
    if (lane == unit.lane || &lane->topic != &topic || !lane->may_start() || !may_share(*lane) ||
        !lane->lane.ready(now))
      continue;
    LaneWork other{.lane = lane, .works = {}};
    lane->lane.hand_out(most - taken, now, other.works);
    if (other.works.empty()) continue;
    if (other.works.front().attempt > 1) {  // a message that has failed runs by itself
      for (const Work& work : other.works) lane->lane.put_back(work);
      continue;
    }
    taken += other.works.size();
    if (topic.runner.services().tracer) other.received_at = arrival_of(*lane, other.works.front().message->offset());
    lane->crowded_since.reset();
    unit.others.push_back(std::move(other));
  }
}

}  // namespace turnstile::detail
