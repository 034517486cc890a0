// A message that ran when a process died runs alone. If the process dies then, this message has killed it, and no other
// message becomes a suspect.
//
// A handler that was left behind may never return, so nothing waits for it. The suspect then runs beside it, and its
// trial is recorded as not alone.

#include <algorithm>

#include "engine/overdue.hpp"
#include "engine/scheduler.hpp"
#include "turnstile/text.hpp"

namespace turnstile::detail {

bool WorkerSlot::is_left_behind(SteadyTime now) const {
  if (lanes.empty()) return false;
  const auto is_gone = [](const LanePtr& lane) { return lane->phase == LaneState::Phase::gone; };
  if (std::all_of(lanes.begin(), lanes.end(), is_gone)) return true;
  return ignores_stop(watch, lanes.front()->topic.runner.plan().handler_timeout, now);
}

bool Scheduler::all_idle_unlocked() const noexcept {
  return std::all_of(slots_.begin(), slots_.end(), [](const WorkerSlot& slot) { return slot.lanes.empty(); });
}

bool Scheduler::is_quiet(SteadyTime now) const {
  return std::all_of(slots_.begin(), slots_.end(),
                     [&](const WorkerSlot& slot) { return slot.lanes.empty() || slot.is_left_behind(now); });
}

/// Nothing else starts while the lane's suspect waits for quiet, so it has its permit before. If it waited for quiet
/// first, others could take the permit.
bool Scheduler::is_quiet_for(const LanePtr& lane, SteadyTime now, Missing& missing) {
  if (is_quiet(now)) return true;
  if (!lane->topic.limiter || has_permit(lane->topic, missing)) wants_quiet_ = lane;
  return false;
}

void Scheduler::want_no_quiet(std::span<const LanePtr> lanes) {
  if (!wants_quiet_ || std::find(lanes.begin(), lanes.end(), wants_quiet_) == lanes.end()) return;
  wants_quiet_.reset();
  idle_workers_.wake_all();
}

namespace {

std::string what_runs(const WorkerSlot& slot, SteadyTime now) {
  const auto run = slot.watch.look();
  const TopicPartition& at = slot.lanes.front()->place.at;
  if (!run) return "a worker with messages of " + to_string(at);
  const auto time = std::chrono::duration_cast<std::chrono::milliseconds>(now - run->since);
  return "the handler of " + to_string(TopicPartitionOffset{{at.topic, run->partition}, run->offset}) +
         ", which has been running for " + text::duration(time);
}

}  // namespace

std::string Scheduler::why_quiet_unlocked(const LaneState& lane, SteadyTime now) const {
  const std::string remedy = ". Have that handler check its stop_token; if it does not return, restart this process";
  if (lone_ != nullptr && !lone_->works_on(lane))
    return "this message has not started: a message that ran when a process died runs alone in this process, and "
           "nothing else starts before it has ended. It is " +
           what_runs(*lone_, now) + remedy;
  if (!wants_quiet_) return {};
  const auto busy = std::find_if(slots_.begin(), slots_.end(), [&](const WorkerSlot& slot) {
    return !slot.lanes.empty() && !slot.is_left_behind(now);
  });
  if (busy == slots_.end()) return {};
  const std::string who = wants_quiet_.get() == &lane
                              ? "it ran when a process died, and must run alone"
                              : "a message of " + to_string(wants_quiet_->place.at) +
                                    " ran when a process died, must run alone, and starts before this one";
  return "this message has not started: " + who + ". It waits for " + what_runs(*busy, now) + remedy;
}

}  // namespace turnstile::detail
