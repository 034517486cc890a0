#pragma once
// The place where a thread waits for a permit. It also notices when the limiters halt: then no permit comes.

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "support/deadline.hpp"
#include "turnstile/ports/limiter.hpp"

namespace turnstile::detail {

class PermitSeat : public std::enable_shared_from_this<PermitSeat> {
 public:
  struct Waited {
    Permit permit;             ///< empty: the deadline has passed, leave() was called, or the limiters halted
    std::string why_halted{};  ///< not empty: the limiters halted, and what to do
  };

  /// Call it once for each seat. The seat must be in a shared_ptr. `limiters` has opened `limiter`.
  Waited wait(ports::Limiter& limiter, const ports::Limiters& limiters, std::int64_t count, Priority priority,
              std::chrono::steady_clock::time_point deadline) {
    for (;;) {
      Waited waited = wait_once(limiter, limiters, count, priority, deadline);
      // Its lease may have ended on its way: the process was suspended. Then the thread stands in line again.
      if (!waited.permit || waited.permit.holds()) return waited;
      const std::lock_guard lock(mutex_);
      if (left_ || std::chrono::steady_clock::now() >= deadline) return {};
    }
  }

  /// Ends wait(). Any thread may call it, also before wait().
  void leave() {
    const std::lock_guard lock(mutex_);
    left_ = true;
    called_.notify_one();
  }

  /// Empty while permits may still come. Otherwise: why no permit comes in this process any more, and what to do.
  static std::string why_halted(const ports::Limiters& limiters) {
    LimitersHealth health = limiters.health();
    if (health.state != LimitersHealth::State::halted) return {};
    return health.why.empty() ? "the limiters are halted" : std::move(health.why);
  }

 private:
  static constexpr std::chrono::milliseconds kAskAgain{500};

  Waited wait_once(ports::Limiter& limiter, const ports::Limiters& limiters, std::int64_t count, Priority priority,
                   std::chrono::steady_clock::time_point deadline) {
    const auto withdraw = limiter.acquire_later(
        count, priority, [seat = shared_from_this()](Permit permit) { seat->deliver(std::move(permit)); });
    Waited waited;
    std::unique_lock lock(mutex_);
    for (;;) {
      const auto next = std::min(deadline, std::chrono::steady_clock::now() + kAskAgain);
      if (called_.wait_until(lock, next, [&] { return permit_ || left_; }) || next == deadline) break;
      lock.unlock();  // the limiters may call deliver() under a lock that health() takes
      waited.why_halted = why_halted(limiters);
      lock.lock();
      if (!waited.why_halted.empty()) break;
    }
    if (!permit_) {
      lock.unlock();
      const bool withdrawn = withdraw();
      lock.lock();
      // Too late to withdraw: the permit is about to be delivered, and would be lost without a receiver.
      if (!withdrawn) called_.wait(lock, [&] { return static_cast<bool>(permit_); });
    }
    waited.permit = std::move(permit_);
    return waited;
  }

  void deliver(Permit permit) {
    const std::lock_guard lock(mutex_);
    permit_ = std::move(permit);
    called_.notify_one();
  }

  std::mutex mutex_;
  std::condition_variable called_;
  Permit permit_;
  bool left_ = false;
};

}  // namespace turnstile::detail
