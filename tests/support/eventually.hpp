#pragma once
// Waits for a condition, with a time limit.

#include <chrono>
#include <thread>

namespace turnstile::test {

/// For a request to a server that all tests share, on a disk that may stand still for seconds.
inline constexpr std::chrono::seconds kServerPatience{60};

/// Returns true as soon as `condition` does, and false after `timeout`. Checks every 10 ms.
template <class Condition>
bool eventually(Condition&& condition, std::chrono::milliseconds timeout = std::chrono::seconds(30)) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (!condition()) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return true;
}

}  // namespace turnstile::test
