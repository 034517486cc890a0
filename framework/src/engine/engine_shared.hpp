#pragma once
// The objects that outlive the engine if handlers never return.

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "engine/engine.hpp"

namespace turnstile::detail {

/// Lets the scheduler wake the polling thread.
struct Engine::Waker {
  std::mutex mutex;
  ports::BrokerConsumer* consumer = nullptr;

  void wake() {
    const std::lock_guard lock(mutex);
    if (consumer != nullptr) consumer->wake();
  }
  void point_to(ports::BrokerConsumer* to) {
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
  std::vector<std::pair<LanePtr, ports::PartitionClaim>> late_claims;
};

}  // namespace turnstile::detail
