#pragma once
// The end of a PollLoop, as stop() requests it.

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <stop_token>
#include <utility>

#include "support/periodic_thread.hpp"

namespace turnstile::detail {

/// A signal handler may call stop(), and must not wake a thread. So a thread of this class checks the flag.
class StopFlag {
 public:
  void request() noexcept { requested_.store(true, std::memory_order_release); }
  [[nodiscard]] bool is_requested() const noexcept { return requested_.load(std::memory_order_acquire); }
  /// Call it once, before token() is used. The thread also calls `look` each time.
  void start_looking(std::function<void()> look) {
    look_ = std::move(look);
    thread_.start();
  }
  [[nodiscard]] std::stop_token token() const noexcept { return source_.get_token(); }
  /// Returns early once `stop` is set.
  static void sleep(std::chrono::milliseconds time, const std::stop_token& stop) {
    std::mutex mutex;
    std::condition_variable_any wake;
    std::unique_lock lock(mutex);
    wake.wait_for(lock, stop, time, [] { return false; });
  }

 private:
  /// How soon waits and handlers notice stop(), and how soon a handler notices the end of its handler_timeout.
  static constexpr std::chrono::milliseconds kLook{50};
  static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler writes it");
  std::atomic<bool> requested_{false};
  std::stop_source source_;
  std::function<void()> look_;
  PeriodicThread thread_{[this] {
    if (is_requested()) source_.request_stop();
    look_();
    return PeriodicThread::after(kLook);
  }};
};

}  // namespace turnstile::detail
