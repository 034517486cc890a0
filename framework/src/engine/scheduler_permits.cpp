// How the scheduler gets permits for its workers, and returns those that no worker uses.

#include <algorithm>
#include <iterator>

#include "engine/scheduler.hpp"

namespace turnstile::detail {

namespace {

using std::chrono::steady_clock;

/// How long a permit waits for a worker while all are busy. It is longer than most handlers take: if it were returned at
/// once, a topic with a contended limit would starve beside others that keep all workers busy.
constexpr std::chrono::milliseconds kUnused{500};

}  // namespace

bool Scheduler::find_permit(TopicState& topic, LaneUnit& unit, Missing& missing) {
  if (topic.delivered.empty() && topic.asked == 0) {
    unit.permit = topic.limiter->try_acquire_fairly(1);
    if (unit.permit) return true;
  }
  if (!has_permit(topic, missing)) return false;
  DeliveredPermit& newest = topic.delivered.back();
  unit.permit = std::move(newest.permit);
  unit.waited = newest.delivered_at - newest.asked_at;
  topic.delivered.pop_back();
  if (topic.delivered.empty()) std::erase(delivered_to_, &topic);
  return true;
}

/// Whether a permit was delivered. If not, the worker requests one.
bool Scheduler::has_permit(TopicState& topic, Missing& missing) {
  if (!topic.delivered.empty()) return true;
  ++topic.asked;
  missing.permits.push_back(&topic);
  return false;
}

/// Waits in the limiter's line, with the other users of its permits in this process.
void Scheduler::ask_for_permit(TopicState& topic) {
  requests_->ask(*topic.limiter, [wake_up = wake_up_, &topic, asked_at = steady_clock::now()](Permit permit) {
    // After the end of the scheduler, the permit is returned when the lock is released.
    wake_up->call([&](Scheduler& scheduler) { scheduler.deliver(topic, permit, asked_at); });
  });
}

void Scheduler::deliver(TopicState& topic, Permit& permit, SteadyTime asked_at) {
  const std::lock_guard lock(mutex_);
  --topic.asked;
  if (stopping_) return;
  if (topic.delivered.empty()) delivered_to_.push_back(&topic);
  topic.delivered.push_back({std::move(permit), asked_at, steady_clock::now()});
  idle_workers_.wake_one();
}

void Scheduler::return_unused_permits() {
  std::vector<DeliveredPermit> unused;
  const std::lock_guard lock(mutex_);
  unused = take_unused_permits(steady_clock::now() - kUnused);
}

/// Those that were delivered before `until`. A message that waits for quiet keeps its own.
std::vector<DeliveredPermit> Scheduler::take_unused_permits(SteadyTime until) {
  std::vector<DeliveredPermit> unused;
  if (delivered_to_.empty()) return unused;
  for (TopicState* topic : delivered_to_) {
    const std::ptrdiff_t kept = wants_quiet_ && &wants_quiet_->topic == topic ? 1 : 0;
    const auto begin = topic->delivered.begin();
    const auto old = std::find_if(begin, topic->delivered.end() - kept,
                                  [&](const DeliveredPermit& one) { return one.delivered_at >= until; });
    std::move(begin, old, std::back_inserter(unused));
    topic->delivered.erase(begin, old);
  }
  std::erase_if(delivered_to_, [](const TopicState* topic) { return topic->delivered.empty(); });
  return unused;
}

}  // namespace turnstile::detail
