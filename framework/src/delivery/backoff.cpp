#include "delivery/backoff.hpp"

#include <algorithm>
#include <random>

namespace turnstile::detail {

std::chrono::milliseconds backoff(const RetryPolicy& policy, int failed, double random) {
  const auto cap = std::max(policy.cap, policy.first);
  auto delay = policy.first;
  for (int i = 1; i < failed && delay < cap; ++i) {
    // Compares before doubling: doubling a delay near the type's limit would overflow.
    delay = delay > cap / 2 ? cap : delay * 2;
  }
  const auto off = static_cast<double>(delay.count()) / 2 * std::clamp(random, 0.0, 1.0);
  return delay - std::chrono::milliseconds(static_cast<std::chrono::milliseconds::rep>(off));
}

double random_number() {
  thread_local std::minstd_rand generator{std::random_device{}()};
  return std::uniform_real_distribution<double>(0.0, 1.0)(generator);
}

}  // namespace turnstile::detail
