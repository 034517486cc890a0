#pragma once
// The current run of a worker. The worker writes it, the watchdog reads it, and the engine cancels it. It uses a few
// relaxed atomics, because a handler may take less than a microsecond.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <stop_token>
#include <utility>

#include "turnstile/message.hpp"
#include "turnstile/ports/limiter.hpp"

namespace turnstile::detail {

class RunState {
 public:
  struct Running {
    std::int32_t partition = 0;
    Offset offset = 0;
    std::chrono::steady_clock::time_point since{};
  };

  /// Worker: a handler starts with this message. The sources of time_out() and cancel() set the token.
  std::stop_token start(const Message& message) {
    if (timed_out_.load(std::memory_order_acquire)) renew();
    partition_.store(message.partition(), std::memory_order_relaxed);
    offset_.store(message.offset(), std::memory_order_relaxed);
    since_.store(std::chrono::steady_clock::now().time_since_epoch().count(), std::memory_order_release);
    return source_.get_token();
  }
  /// Worker: the handler has returned.
  void finish() noexcept { since_.store(0, std::memory_order_release); }

  /// Worker: a new unit starts. A cancel() of an earlier unit does not apply to it.
  void reset() {
    const std::lock_guard lock(mutex_);
    // Also if no stop was requested yet: the callers of cancel() and time_out() do it later.
    const bool stops = cancelled_.load(std::memory_order_relaxed) || timed_out_.load(std::memory_order_relaxed);
    if (stops) source_ = std::stop_source();
    cancelled_.store(false, std::memory_order_relaxed);
    timed_out_.store(false, std::memory_order_relaxed);
    permit_ = nullptr;
    way_ = {};
    go_on_ = nullptr;
  }
  /// Worker: what is told and asked before each further transaction of the unit. `settled`: how many of its first messages
  /// are. It returns false if no other transaction should start.
  using GoOn = std::function<bool(std::size_t settled)>;
  void between(GoOn go_on) { go_on_ = std::move(go_on); }
  [[nodiscard]] bool may_go_on(std::size_t settled) const { return !go_on_ || go_on_(settled); }
  /// Worker: the unit runs under this permit until reset(). The permit lives at least that long.
  void under(const Permit& permit) noexcept { permit_ = permit ? &permit : nullptr; }
  /// Worker: how the unit came to it, for its traces.
  struct Way {
    std::optional<std::chrono::nanoseconds> permit_wait{};               ///< absent: the permit was there at once
    std::optional<std::chrono::steady_clock::time_point> received_at{};  ///< its first message; absent: not known
  };
  void came(const Way& way) noexcept { way_ = way; }
  [[nodiscard]] const Way& way() const noexcept { return way_; }
  /// Worker: the permit of this unit is lost.
  [[nodiscard]] bool permit_is_lost() const noexcept { return permit_ != nullptr && !permit_->holds(); }
  /// Worker: no further handler of this unit may start.
  [[nodiscard]] bool is_over() const noexcept { return cancelled() || permit_is_lost(); }
  /// Engine: no further handler of this unit should start. To stop running handlers, the caller requests a stop of the
  /// returned source, without a lock: that runs the callbacks of the handlers, which may call anything.
  [[nodiscard]] std::stop_source cancel() {
    const std::lock_guard lock(mutex_);
    cancelled_.store(true, std::memory_order_release);
    return source_;
  }
  [[nodiscard]] bool cancelled() const noexcept { return cancelled_.load(std::memory_order_acquire); }

  /// Watchdog: the current run, if there is one.
  [[nodiscard]] std::optional<Running> look() const {
    const auto since = since_.load(std::memory_order_acquire);
    if (since == 0) return std::nullopt;
    return Running{partition_.load(std::memory_order_relaxed), offset_.load(std::memory_order_relaxed),
                   std::chrono::steady_clock::time_point(std::chrono::steady_clock::duration(since))};
  }
  /// Watchdog: the handler has timed out. To stop it, the caller requests a stop, as for cancel(). Absent: not the first
  /// call for this run.
  [[nodiscard]] std::optional<std::stop_source> time_out() {
    const std::lock_guard lock(mutex_);
    if (timed_out_.exchange(true, std::memory_order_acq_rel)) return std::nullopt;
    return source_;
  }

 private:
  void renew() {
    const std::lock_guard lock(mutex_);
    if (!cancelled_.load(std::memory_order_relaxed)) source_ = std::stop_source();
    timed_out_.store(false, std::memory_order_release);
  }

  std::atomic<std::int32_t> partition_{0};
  std::atomic<Offset> offset_{0};
  std::atomic<std::chrono::steady_clock::duration::rep> since_{0};
  std::atomic<bool> timed_out_{false};
  std::atomic<bool> cancelled_{false};
  std::mutex mutex_;  ///< protects source_ from the watchdog and the engine
  std::stop_source source_;
  const Permit* permit_ = nullptr;  ///< used by the worker only
  Way way_;                         ///< used by the worker only
  GoOn go_on_;                      ///< used by the worker only
};

}  // namespace turnstile::detail
