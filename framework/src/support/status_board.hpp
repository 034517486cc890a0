#pragma once
// The result of Consumer::status(): the state of run(), and the engine's knowledge of its partitions while there is an
// engine.

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <string>
#include <utility>

#include "turnstile/status.hpp"

namespace turnstile::detail {

/// Thread-safe. Do not call it with a lock that `details` takes.
class StatusBoard {
 public:
  /// Adds everything else to the state of run(), and may add a reason.
  using Details = std::function<void(Status&)>;

  void set(Health::State state, std::string reason = {}) {
    const std::lock_guard lock(mutex_);
    if (state == health_.state && reason == health_.reason) return;
    if (state != health_.state) health_.since = std::chrono::system_clock::now();
    health_.state = state;
    health_.reason = std::move(reason);
  }
  void name(std::string name) {
    const std::lock_guard lock(mutex_);
    health_.name = std::move(name);
  }
  /// Empty: there is no engine any more. When this returns, no look() is using the old details.
  void ask(Details details) {
    const std::lock_guard lock(mutex_);
    details_ = std::move(details);
  }
  /// Somebody wants what only Kafka and PostgreSQL know.
  void want_all() noexcept { wants_all_.store(true, std::memory_order_relaxed); }
  [[nodiscard]] bool wants_all() const noexcept { return wants_all_.load(std::memory_order_relaxed); }
  [[nodiscard]] Status look() const {
    const std::lock_guard lock(mutex_);
    Status status;
    status.health = health_;
    if (details_) details_(status);
    return status;
  }

 private:
  mutable std::mutex mutex_;
  Health health_;
  Details details_;
  std::atomic<bool> wants_all_{false};
};

}  // namespace turnstile::detail
