#pragma once
// The result of Consumer::health(): the state of run(), and the engine's knowledge of its partitions while there is an
// engine.

#include <chrono>
#include <functional>
#include <mutex>
#include <string>
#include <utility>

#include "turnstile/health.hpp"

namespace turnstile::detail {

/// Thread-safe. Do not call it with a lock that `details` takes.
class HealthBoard {
 public:
  /// Adds the state of the partitions, and may add a reason.
  using Details = std::function<void(Health&)>;

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
  /// Empty: there are no partitions any more. When this returns, no look() is using the old details.
  void ask(Details details) {
    const std::lock_guard lock(mutex_);
    details_ = std::move(details);
  }
  [[nodiscard]] Health look() const {
    const std::lock_guard lock(mutex_);
    Health health = health_;
    if (details_) details_(health);
    return health;
  }

 private:
  mutable std::mutex mutex_;
  Health health_;
  Details details_;
};

}  // namespace turnstile::detail
