#pragma once
// Bounds the shutdown of a process even if the store hangs: after a deadline no call waits for the store any more.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>

#include "support/periodic_thread.hpp"
#include "turnstile/ports/store.hpp"

namespace turnstile::detail {

/// How long handlers have to notice their stop_token after the drain time has passed.
inline constexpr std::chrono::milliseconds kGrace{2'000};
/// How long the last calls to the store (watermarks, releases) may take after that, all together.
inline constexpr std::chrono::milliseconds kLastCalls{1'000};

/// A deadline for all calls to the store. It starts when `stop` becomes positive, and ends after `drain`, kGrace and
/// kLastCalls. A second stop ends the drain here too. After the deadline the store is cut, until this object is
/// destroyed.
class EndBound {
 public:
  /// `store` may be null.
  EndBound(std::shared_ptr<ports::Store> store, const std::atomic<int>& stop, std::chrono::milliseconds drain)
      : store_(std::move(store)), stop_(stop), drain_(drain) {
    if (store_) thread_.start(PeriodicThread::after(kLook));
  }
  ~EndBound() {
    if (!store_) return;
    thread_.stop();
    store_->cut(false);
  }
  EndBound(const EndBound&) = delete;
  EndBound& operator=(const EndBound&) = delete;

 private:
  static constexpr std::chrono::milliseconds kLook{100};

  PeriodicThread::Time look() {
    const int stops = stop_.load(std::memory_order_relaxed);
    const auto now = std::chrono::steady_clock::now();
    if (stops > 0 && !end_) end_ = now + drain_ + kGrace + kLastCalls;
    if (stops > 1 && !hurried_) {
      hurried_ = true;
      end_ = std::min(*end_, now + kGrace + kLastCalls);
    }
    if (!end_ || now < *end_) return PeriodicThread::after(kLook);
    store_->cut(true);
    return PeriodicThread::kWhenWoken;
  }

  const std::shared_ptr<ports::Store> store_;
  const std::atomic<int>& stop_;
  const std::chrono::milliseconds drain_;
  // Used only by the thread:
  std::optional<PeriodicThread::Time> end_;
  bool hurried_ = false;
  PeriodicThread thread_{[this] { return look(); }};
};

}  // namespace turnstile::detail
