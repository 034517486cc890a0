#include "delivery/after_failure.hpp"

#include <algorithm>

#include "delivery/backoff.hpp"

namespace turnstile::detail {

using std::chrono::milliseconds;

AfterFailure after_failure(const TopicPlan& plan, const Failure& failure, int attempt, double random) {
  if (failure.dead_letter) return {.dead_letter = failure.dead_letter};
  const std::string why = failure.why.empty() ? "the handler gave no reason" : failure.why;
  const auto& answer = failure.outcome;
  if (answer && answer->kind() == Outcome::Kind::dead_letter)
    return {.dead_letter = DeadLetter{DeadReason::rejected, why, attempt}};
  if (attempt >= plan.retry.attempts && plan.dead_letter)
    return {.dead_letter = DeadLetter{DeadReason::failed, why, attempt}};
  if (answer && answer->kind() == Outcome::Kind::retry_after)
    return {.delay = std::clamp<milliseconds>(answer->delay(), milliseconds{0}, kLongestRetryDelay), .why = why};
  return {.delay = backoff(plan.retry, attempt, random), .why = why};
}

}  // namespace turnstile::detail
