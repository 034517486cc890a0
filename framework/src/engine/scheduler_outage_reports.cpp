// What the scheduler learns of the store, and how it reports an outage. What runs during one is decided by StoreBreaker.

#include <random>
#include <set>
#include <utility>

#include "engine/scheduler.hpp"

namespace turnstile::detail {

void Scheduler::note_store(const UnitResult& result, SteadyTime began, SteadyTime now, const TopicState& topic) {
  if (!topic.needs_store()) return;
  if (result.end == UnitResult::End::store_unavailable) {
    thread_local std::minstd_rand generator{std::random_device{}()};
    if (breaker_.failed(began, now, std::uniform_real_distribution<double>(0.0, 1.0)(generator)))
      store_changed(false, result.why);
  } else if (breaker_.answered(now)) {
    store_changed(true, {});
  }
}

void Scheduler::store_changed(bool available, const std::string& why) {
  store_trouble_ = available ? std::string() : why;
  if (!available && wants_quiet_ && wants_quiet_->topic.needs_store()) wants_quiet_.reset();
  if (available) run_log_->info("PostgreSQL answers again, and handlers start again");
  else
    run_log_->error(
        Code::store_unavailable,
        "PostgreSQL cannot be used. Handlers that need it start again once it answers; polling continues: " + why);
  std::set<TopicState*> open;
  for (const auto& lane : lanes_) {
    if (lane->topic.fails_open()) open.insert(&lane->topic);
  }
  for (TopicState* topic : open) {
    const std::string& name = topic->runner.plan().topic;
    if (!available) {
      run_log_->warn(Code::fail_open, "topic " + name +
                                          ": its handlers keep running without claims, because store_down is run. "
                                          "Duplicates delivered during the outage take effect twice");
    } else if (const auto count = std::exchange(topic->unclaimed, 0); count > 0) {
      run_log_->warn(Code::fail_open,
                     "topic " + name + ": " + std::to_string(count) +
                         " messages ran without a claim during the outage: those that were or will be delivered again "
                         "take effect again");
    }
  }
  store_changes_.push_back(available);
  idle_workers_.wake_all();
}

std::vector<bool> Scheduler::take_store_changes() {
  const std::lock_guard lock(mutex_);
  return std::exchange(store_changes_, {});
}

void Scheduler::store_answered() {
  const std::lock_guard lock(mutex_);
  if (breaker_.answered(std::chrono::steady_clock::now())) store_changed(true, {});
}

void Scheduler::store_failed(const std::string& why) {
  const std::lock_guard lock(mutex_);
  const SteadyTime now = std::chrono::steady_clock::now();
  if (breaker_.failed(now, now, 0)) store_changed(false, why);
}

bool Scheduler::store_available() const {
  const std::lock_guard lock(mutex_);
  return breaker_.is_closed();
}

}  // namespace turnstile::detail
