#pragma once
// How long a failed message waits. Pure: chance is an input.

#include <chrono>

#include "turnstile/settings.hpp"

namespace turnstile {

/// The delay before attempt `failed` + 1, after `failed` attempts (at least 1) have failed: first * 2^(failed-1), at
/// most `cap`, of which up to half is taken off. `random` is in [0, 1): 0 takes nothing off.
std::chrono::milliseconds backoff(const RetryPolicy& policy, int failed, double random);

}  // namespace turnstile
