#pragma once
// Converts a caller's timeout to a deadline, and back.

#include <algorithm>
#include <chrono>

namespace turnstile::detail {

/// Never in the past, and valid for any timeout: milliseconds::max() would overflow if it were added to the time.
inline std::chrono::steady_clock::time_point deadline_after(std::chrono::milliseconds timeout) {
  constexpr std::chrono::milliseconds kAsGoodAsNever = std::chrono::hours(24 * 3'650);
  return std::chrono::steady_clock::now() + std::clamp(timeout, std::chrono::milliseconds(0), kAsGoodAsNever);
}

/// The time until the deadline, rounded up. 0 after it.
inline std::chrono::milliseconds time_left(std::chrono::steady_clock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  return std::max(left, std::chrono::milliseconds(0));
}

}  // namespace turnstile::detail
