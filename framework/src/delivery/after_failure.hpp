#pragma once
// Decides what happens after a handler threw or did not accept its message: another attempt, or a dead letter. Pure:
// the random number is an input.

#include <chrono>
#include <optional>
#include <string>

#include "config/topic_plan.hpp"
#include "delivery/dead_letters.hpp"
#include "delivery/failure.hpp"

namespace turnstile::detail {

struct AfterFailure {
  std::optional<DeadLetter> dead_letter{};  ///< absent: the message runs again
  std::chrono::milliseconds delay{};        ///< the time until it runs again
  std::string why{};
};

/// For a message that ran alone. `attempt`: the number of the attempt that failed. `random`: in [0, 1), see backoff().
[[nodiscard]] AfterFailure after_failure(const TopicPlan& plan, const Failure& failure, int attempt, double random);

}  // namespace turnstile::detail
