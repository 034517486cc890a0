#pragma once
// What outlives the engine, in the hands of workers whose handlers never return.

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "engine/engine.hpp"

namespace turnstile {

/// What the scheduler wakes the polling thread by.
struct Engine::Waker {
  std::mutex mutex;
  BrokerConsumer* consumer = nullptr;

  void wake() {
    const std::lock_guard lock(mutex);
    if (consumer != nullptr) consumer->wake();
  }
  void point_to(BrokerConsumer* to) {
    const std::lock_guard lock(mutex);
    consumer = to;
  }
};

struct Engine::Shared {
  Shared(Window window, std::shared_ptr<const RunLog> run_log, std::function<void()> room_again)
      : scheduler(window, std::move(run_log), std::move(room_again)) {}

  std::vector<std::unique_ptr<TopicState>> topics;
  Scheduler scheduler;
  std::mutex mutex;
  std::vector<std::pair<LanePtr, PartitionClaim>> late_claims;
  std::vector<LanePtr> behind;  ///< of these the database has forgotten how far they came
};

}  // namespace turnstile
