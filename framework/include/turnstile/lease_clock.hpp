#pragma once
// The clock of all leases of this process: of permits, claims, and anything else with a deadline that other processes
// also count.
// It continues while the machine is suspended, so a process that wakes up finds its leases over. On Linux
// std::chrono::steady_clock stops during a suspend. A hypervisor that pauses a virtual machine stops this clock too:
// see docs/reference/guarantees.md, "Clocks and pauses".

#include <atomic>
#include <chrono>
#include <cstdint>
#include <ctime>

namespace turnstile {

/// A clock in the form of std::chrono. It never goes back. Thread-safe.
struct LeaseClock {
  using duration = std::chrono::nanoseconds;               ///< nanoseconds
  using rep = duration::rep;                               ///< of the duration
  using period = duration::period;                         ///< of the duration
  using time_point = std::chrono::time_point<LeaseClock>;  ///< of this clock
  static constexpr bool is_steady = true;                  ///< It never goes back.

  /// The time now, including suspended time.
  static time_point now() noexcept {
    std::timespec time{};
#if defined(CLOCK_BOOTTIME)
    ::clock_gettime(CLOCK_BOOTTIME, &time);
#else
    ::clock_gettime(CLOCK_MONOTONIC, &time);
#endif
    return time_point(std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec) + suspended());
  }
  /// The time now in microseconds, as an integer for atomics.
  [[nodiscard]] static std::int64_t now_us() noexcept {
    return std::chrono::duration_cast<std::chrono::microseconds>(now().time_since_epoch()).count();
  }

#if defined(TURNSTILE_FAILPOINTS) && TURNSTILE_FAILPOINTS
  /// For tests: simulates that the machine was suspended for `time`.
  static void suspend(duration time) noexcept { shift_ns.fetch_add(time.count()); }

 private:
  static duration suspended() noexcept { return duration(shift_ns.load(std::memory_order_relaxed)); }
  static inline std::atomic<rep> shift_ns{0};
#else

 private:
  static constexpr duration suspended() noexcept { return duration::zero(); }
#endif
};

}  // namespace turnstile
