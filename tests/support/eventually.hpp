#pragma once
// Waiting for a condition, with a bound.

#include <chrono>
#include <thread>

namespace turnstile::test {

/// True as soon as `condition` is; false when it is not within `timeout`. Looks every 10 ms.
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
