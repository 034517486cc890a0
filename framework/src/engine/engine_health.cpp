// The engine's own state: what it waits for, what it reports, and what it does when it cannot continue.

#include <algorithm>
#include <thread>

#include "engine/engine.hpp"
#include "engine/engine_shared.hpp"
#include "engine/holds.hpp"
#include "turnstile/error.hpp"
#include "turnstile/text.hpp"

namespace turnstile::detail {

namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

/// The longest time until a stop is seen.
constexpr milliseconds kStopWait{100};
/// A consumer without partitions reports it after this time, or after stall_after. A rebalance has usually ended by
/// then.
constexpr milliseconds kPatienceForPartitions{10'000};

}  // namespace

/// A state that does not end by itself. Empty: there is none.
std::string Engine::why_halted() const {
  const LimitersHealth limiters = limiters_->health();
  return limiters.state == LimitersHealth::State::halted ? limiters.why : std::string();
}

/// The consumer leaves the group. If it stayed without working, it would keep its partitions from members that work.
void Engine::halt(const std::string& why) {
  const bool ends = settings_.consumer.when_halted == HaltPolicy::end;
  settings_.health->set(Health::State::halted, why);
  run_log_->error(Code::halted,
                  "this consumer cannot continue: " + why + ". It lets its handlers end and leaves the group" +
                      (ends ? ", and run() throws (consumer.when_halted is end)"
                            : ": other members get its partitions, and this process does nothing until it is stopped "
                              "(consumer.when_halted is release)"));
  shut_down();
  if (ends) throw Halted(Code::halted, why);
  auto tell_at = steady_clock::now() + settings_.consumer.stall_after;
  while (stop_->load(std::memory_order_relaxed) == 0) {
    std::this_thread::sleep_for(kStopWait);
    if (steady_clock::now() < tell_at) continue;
    tell_at += settings_.consumer.stall_after;
    run_log_->error(Code::halted, "this consumer is halted, has left the group and does nothing: " + why);
  }
}

void Engine::count_partitions(std::size_t now) {
  partitions_ = now;
  waiting_since_ = now == 0 ? std::optional(steady_clock::now()) : std::nullopt;
  settings_.health->set(now == 0 ? Health::State::waiting : Health::State::running);
}

void Engine::tell_of_waiting() {
  const auto patience = std::min(kPatienceForPartitions, settings_.consumer.stall_after);
  if (!waiting_since_ || steady_clock::now() - *waiting_since_ < patience) return;
  waiting_since_.reset();
  std::string topics;
  for (const std::string& name : names_) topics += (topics.empty() ? "" : ", ") + name;
  run_log_->info("no partition of " + topics + " was assigned to this consumer for " + text::duration(patience) +
                 ", and it waits for one: the group '" + settings_.group +
                 "' has more members than partitions, its rebalance is not over, or the brokers cannot be reached "
                 "(kafka-consumer-groups.sh --describe --group " +
                 settings_.group + " --members shows which members have them)");
}

/// Consumer::health(), on any thread.
void Engine::describe(Health& health) const {
  const bool at_work = health.state == Health::State::running || health.state == Health::State::waiting;
  if (!at_work) return;
  Scheduler& scheduler = shared_->scheduler;
  const Holds holds(scheduler, limiters_.get());
  const LimitersHealth limiters = limiters_->health();
  const auto now = steady_clock::now();
  const auto now_of_day = std::chrono::system_clock::now();
  scheduler.locked([&] {
    const auto& lanes = scheduler.lanes_unlocked();
    health.partitions = lanes.size();
    // A topic that continues without the database keeps the process at work.
    const bool all_wait = std::all_of(lanes.begin(), lanes.end(), [](const LanePtr& lane) {
      return lane->topic.needs_store() && !lane->topic.fails_open();
    });
    if (const auto& store = scheduler.store_trouble_unlocked(); !store.empty() && all_wait)
      health.reason = "the database cannot be used: " + store;
    else if (limiters.state != LimitersHealth::State::working) health.reason = limiters.why;
    for (const LanePtr& lane : lanes) {
      if (!is_stuck(*lane, now, settings_.consumer.stall_after)) continue;
      Hold hold = holds.of(*lane, now);
      const auto lasted = std::chrono::duration_cast<std::chrono::system_clock::duration>(now - lane->moved_at);
      health.problems.push_back({lane->place.at, std::move(hold.why), hold.offset, now_of_day - lasted});
    }
  });
}

}  // namespace turnstile::detail
