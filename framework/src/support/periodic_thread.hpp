#pragma once
// A thread that repeats a step: at the times that the step returns, and when another thread wakes it.

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

#include "support/deadline.hpp"

namespace turnstile::detail {

/// Thread-safe; only one thread at a time may call stop(). As a member it stands after everything that its step uses,
/// so that its destructor ends the steps first.
class PeriodicThread {
 public:
  using Time = std::chrono::steady_clock::time_point;
  /// Runs on the thread, without a lock. Returns when it runs next. It must not throw, and must not call stop().
  using Step = std::function<Time()>;
  static constexpr Time kAtOnce{};
  static constexpr Time kWhenWoken = Time::max();
  [[nodiscard]] static Time after(std::chrono::milliseconds pause) { return deadline_after(pause); }

  explicit PeriodicThread(Step step) : step_(std::move(step)) {}
  ~PeriodicThread() { stop(); }
  PeriodicThread(const PeriodicThread&) = delete;
  PeriodicThread& operator=(const PeriodicThread&) = delete;

  /// Starts the thread, which runs its first step at `first`. Does nothing if it was started or stopped before.
  void start(Time first = kAtOnce);
  /// A step begins at once, or when the current one has ended. Starts the thread if it was not started before.
  void wake();
  /// No step begins after this call. Does not wait for the current step.
  void request_stop();
  /// As request_stop(), and ends the thread: waits for the current step.
  void stop();

 private:
  void start_unlocked(Time first);
  void run();

  const Step step_;
  std::mutex mutex_;  ///< protects the following members
  std::condition_variable changed_;
  Time next_{};  ///< when the next step begins, if nothing wakes the thread before
  bool woken_ = false;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace turnstile::detail
