#pragma once
// How long the engine's polling thread waits for Kafka between two polls, and a planted bug of both files that ask Kafka
// about its logs.

#include <chrono>

#include "support/known_bad.hpp"

namespace turnstile::detail {

/// The longest wait for the broker between two polls: an available broker answers within milliseconds.
inline constexpr std::chrono::milliseconds kKafkaWait{500};
/// The pause after a call that the broker did not answer.
inline constexpr std::chrono::milliseconds kKafkaRest{2'000};

/// A planted bug, for the test that must find it: offsets that were taken before are dropped, of any log.
inline bool drops_what_was_taken() { return known_bad("taken_before"); }

}  // namespace turnstile::detail
