#pragma once
// How long a failed message waits before its next attempt. Pure: the random number is an input.

#include <chrono>

#include "turnstile/topic_settings.hpp"

namespace turnstile::detail {

/// The delay before attempt `failed` + 1, after `failed` attempts (at least 1) have failed. It is first * 2^(failed-1),
/// up to the larger of `cap` and `first`, minus a random part of up to half. `random`: in [0, 1); 0 subtracts nothing.
std::chrono::milliseconds backoff(const RetryPolicy& policy, int failed, double random);

/// A random number in [0, 1).
double random_number();

}  // namespace turnstile::detail
