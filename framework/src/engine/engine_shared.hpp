#pragma once
// The objects that outlive the engine if handlers never return.

#include <atomic>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "engine/engine.hpp"

namespace turnstile::detail {

/// Lets the workers wake the polling thread.
class Waker {
 public:
  void wake() {
    const std::lock_guard lock(mutex_);
    if (consumer_ != nullptr) consumer_->wake();
  }
  void point_to(ports::BrokerConsumer* to) {
    const std::lock_guard lock(mutex_);
    consumer_ = to;
  }

 private:
  std::mutex mutex_;
  ports::BrokerConsumer* consumer_ = nullptr;
};

struct Engine::Shared {
  Shared(Window window, std::shared_ptr<const RunLog> run_log)
      : scheduler(window, std::move(run_log), [this] { waker.wake(); }) {}

  /// What Kafka told, for the watchdog.
  void note(const PartitionEnds& ends) {
    scheduler.locked([&] {
      for (const auto& lane : scheduler.lanes_unlocked()) {
        if (const auto told = ends.find(lane->place.at); told != ends.end()) lane->end = told->second;
      }
    });
  }

  Waker waker;
  std::vector<std::unique_ptr<TopicState>> topics;
  Scheduler scheduler;
  /// The thread that has it may use the consumer: the polling thread, except while it waits, or a worker that has
  /// received records.
  std::mutex turn;
  Engine* engine = nullptr;            ///< while records may be taken; protected by `turn`
  std::atomic<bool> have_come{false};  ///< records that the thread with the turn must take before it waits
  std::mutex mutex;
  std::vector<std::pair<LanePtr, ports::PartitionClaim>> late_claims;
};

}  // namespace turnstile::detail
