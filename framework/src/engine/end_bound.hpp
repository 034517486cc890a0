#pragma once
// Bounds the shutdown of a process even if the store hangs: after a deadline no call waits for the store any more.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "turnstile/ports/store.hpp"

namespace turnstile {

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
  EndBound(std::shared_ptr<Store> store, const std::atomic<int>& stop, std::chrono::milliseconds drain)
      : store_(std::move(store)), stop_(stop), drain_(drain) {
    if (store_) thread_ = std::thread([this] { run(); });
  }
  ~EndBound() {
    if (!thread_.joinable()) return;
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
    }
    wake_.notify_all();
    thread_.join();
    store_->cut(false);
  }
  EndBound(const EndBound&) = delete;
  EndBound& operator=(const EndBound&) = delete;

 private:
  void run() {
    using std::chrono::steady_clock;
    constexpr std::chrono::milliseconds kLook{100};
    std::optional<steady_clock::time_point> end;
    bool hurried = false;
    std::unique_lock lock(mutex_);
    while (!wake_.wait_for(lock, kLook, [this] { return ended_; })) {
      const int stops = stop_.load(std::memory_order_relaxed);
      const auto now = steady_clock::now();
      if (stops > 0 && !end) end = now + drain_ + kGrace + kLastCalls;
      if (stops > 1 && !hurried) {
        hurried = true;
        end = std::min(*end, now + kGrace + kLastCalls);
      }
      if (end && now >= *end) return store_->cut(true);
    }
  }

  const std::shared_ptr<Store> store_;
  const std::atomic<int>& stop_;
  const std::chrono::milliseconds drain_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool ended_ = false;
  std::thread thread_;
};

}  // namespace turnstile
