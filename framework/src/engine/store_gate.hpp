#pragma once
// Whether the store of ids can be reached, as far as is known: closed after a failure, opened by one unit of work that is
// let through to try (half open). Guarded by the scheduler's lock.

#include <algorithm>
#include <chrono>
#include <string>

#include "engine/lane.hpp"

namespace turnstile {

class StoreGate {
 public:
  /// Whether work that needs the store may start. While closed, one a time is let through, as a probe.
  bool enter(SteadyTime now) {
    if (open_) return true;
    if (probing_ || now < next_probe_) return false;
    probing_ = true;
    return true;
  }
  /// When the next probe may start; nothing needs to be waited for while open or probing.
  [[nodiscard]] SteadyTime next_probe() const noexcept { return probing_ ? SteadyTime::max() : next_probe_; }
  [[nodiscard]] bool is_open() const noexcept { return open_; }

  /// The store answered. True when that is a change of state.
  bool answered() {
    probing_ = false;
    delay_ = kFirst;
    return !std::exchange(open_, true);
  }
  /// It did not. `random` in [0, 1) takes up to half of the delay off. True when that is a change of state.
  bool failed(SteadyTime now, double random) {
    probing_ = false;
    const auto cut = std::chrono::duration_cast<std::chrono::milliseconds>(delay_ * (random / 2));
    next_probe_ = now + (delay_ - cut);
    delay_ = std::min(delay_ * 2, kCap);
    return std::exchange(open_, false);
  }
  /// A probe that found nothing to do with the store.
  void leave() noexcept { probing_ = false; }

 private:
  static constexpr std::chrono::milliseconds kFirst{100};
  static constexpr std::chrono::milliseconds kCap{5'000};
  bool open_ = true;
  bool probing_ = false;
  SteadyTime next_probe_{};
  std::chrono::milliseconds delay_ = kFirst;
};

}  // namespace turnstile
