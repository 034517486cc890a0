#pragma once
// The circuit breaker in front of the store. It decides what runs while PostgreSQL is unavailable. Closed: units run.
// Open, after a failure: until the next probe is due, after 100 ms, doubling to 5 s, units wait, or run unclaimed where
// store_down is `run`. Half open: one unit runs as a probe, and its success closes the breaker. The scheduler's lock
// protects it.

#include <algorithm>
#include <chrono>
#include <string>

#include "engine/lane.hpp"
#include "turnstile/types.hpp"

namespace turnstile::detail {

class StoreBreaker {
 public:
  /// How a unit that needs the store starts.
  enum class Entry : std::uint8_t { with_store, as_probe, unclaimed, waits };
  Entry enter(SteadyTime now, StoreDownPolicy store_down) {
    if (closed_) return Entry::with_store;
    if (!probing_ && now >= next_probe_) {
      probing_ = true;
      return Entry::as_probe;
    }
    return store_down == StoreDownPolicy::run ? Entry::unclaimed : Entry::waits;
  }
  /// When the next probe may start. There is no need to wait for it while the breaker is closed or a probe runs.
  [[nodiscard]] SteadyTime next_probe() const noexcept { return probing_ ? SteadyTime::max() : next_probe_; }
  [[nodiscard]] bool is_closed() const noexcept { return closed_; }

  /// The store answered. True if this changes the state.
  bool answered(SteadyTime now) {
    probing_ = false;
    delay_ = kFirst;
    if (closed_) return false;
    closed_at_ = now;
    return closed_ = true;
  }
  /// The store failed a unit that began then. What began before the breaker closed may have met the outage that is over,
  /// and changes nothing. `random` in [0, 1) subtracts up to half of the delay. True if this changes the state.
  bool failed(SteadyTime began, SteadyTime now, double random) {
    if (closed_ && began < closed_at_) return false;
    probing_ = false;
    const auto cut = std::chrono::duration_cast<std::chrono::milliseconds>(delay_ * (random / 2));
    next_probe_ = now + (delay_ - cut);
    delay_ = std::min(delay_ * 2, kCap);
    return std::exchange(closed_, false);
  }
  /// The probe did not start, or ended without a call to the store.
  void leave() noexcept { probing_ = false; }

 private:
  static constexpr std::chrono::milliseconds kFirst{100};
  static constexpr std::chrono::milliseconds kCap{5'000};
  bool closed_ = true;
  bool probing_ = false;
  SteadyTime next_probe_{}, closed_at_{};
  std::chrono::milliseconds delay_ = kFirst;
};

}  // namespace turnstile::detail
