#pragma once
// The circuit breaker in front of the store of ids. Closed: units run. Open, after a failure: one unit at a time is let through to try,
// after 100 ms, doubling to 5 s (half open); its success closes the breaker. Guarded by the scheduler's lock.

#include <algorithm>
#include <chrono>
#include <string>

#include "engine/lane.hpp"

namespace turnstile {

class StoreBreaker {
 public:
  /// Whether a unit that needs the store may start. While open, one at a time may, as a probe.
  bool enter(SteadyTime now) {
    if (closed_) return true;
    if (probing_ || now < next_probe_) return false;
    probing_ = true;
    return true;
  }
  /// When the next probe may start; nothing needs to be waited for while closed or probing.
  [[nodiscard]] SteadyTime next_probe() const noexcept { return probing_ ? SteadyTime::max() : next_probe_; }
  [[nodiscard]] bool is_closed() const noexcept { return closed_; }

  /// The store answered. True when that is a change of state.
  bool answered() {
    probing_ = false;
    delay_ = kFirst;
    return !std::exchange(closed_, true);
  }
  /// It did not. `random` in [0, 1) takes up to half of the delay off. True when that is a change of state.
  bool failed(SteadyTime now, double random) {
    probing_ = false;
    const auto cut = std::chrono::duration_cast<std::chrono::milliseconds>(delay_ * (random / 2));
    next_probe_ = now + (delay_ - cut);
    delay_ = std::min(delay_ * 2, kCap);
    return std::exchange(closed_, false);
  }
  /// A probe that found nothing to do with the store.
  void leave() noexcept { probing_ = false; }

 private:
  static constexpr std::chrono::milliseconds kFirst{100};
  static constexpr std::chrono::milliseconds kCap{5'000};
  bool closed_ = true;
  bool probing_ = false;
  SteadyTime next_probe_{};
  std::chrono::milliseconds delay_ = kFirst;
};

}  // namespace turnstile
