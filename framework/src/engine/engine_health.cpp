// The engine's own state: what it waits for, what it reports, and what it does when it cannot continue.

#include <algorithm>
#include <thread>

#include "engine/engine.hpp"
#include "engine/engine_shared.hpp"
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
  settings_.status->set(Health::State::halted, why);
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
  settings_.status->set(now == 0 ? Health::State::waiting : Health::State::running);
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

}  // namespace turnstile::detail
