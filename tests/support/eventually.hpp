#pragma once
// Waits for a condition, with a time limit.

#include <chrono>
#include <thread>

namespace turnstile::test {

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
