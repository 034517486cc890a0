// What happens to a message after its handler failed.

#include "delivery/after_failure.hpp"

#include <gtest/gtest.h>

#include <exception>

namespace turnstile::detail {
namespace {

using std::chrono::milliseconds;

TopicPlan plan(std::optional<std::string> dead_letter) {
  TopicPlan plan = plan_topic("t", {});
  plan.retry = {.attempts = 3, .first = milliseconds(100), .cap = milliseconds(1'000)};
  plan.dead_letter = std::move(dead_letter);
  return plan;
}

TEST(AfterFailure, the_message_runs_again_until_its_attempts_are_used_up) {
  const Failure failure{.why = "no"};
  for (const int attempt : {1, 2}) {
    const auto next = after_failure(plan("t.dlq"), failure, attempt, 0);
    EXPECT_FALSE(next.dead_letter);
    EXPECT_EQ(next.delay, milliseconds(attempt * 100));
    EXPECT_EQ(next.why, "no");
  }
  const auto last = after_failure(plan("t.dlq"), failure, 3, 0);
  ASSERT_TRUE(last.dead_letter);
  EXPECT_EQ(last.dead_letter->reason, DeadReason::failed);
  EXPECT_EQ(last.dead_letter->attempts, 3);
  EXPECT_EQ(last.dead_letter->error, "no");
}

TEST(AfterFailure, without_a_dead_letter_topic_the_message_runs_again_for_ever) {
  const auto next = after_failure(plan(std::nullopt), {.why = "no"}, 1'000, 0);
  EXPECT_FALSE(next.dead_letter);
  EXPECT_EQ(next.delay, milliseconds(1'000));
}

TEST(AfterFailure, the_handlers_answer_overrides_the_policy) {
  const auto later =
      after_failure(plan("t.dlq"), {.why = "no", .outcome = Outcome::retry_after(milliseconds(7))}, 1, 0);
  EXPECT_FALSE(later.dead_letter);
  EXPECT_EQ(later.delay, milliseconds(7));
  const auto never = after_failure(plan(std::nullopt), {.why = "", .outcome = Outcome::dead_letter("")}, 1, 0);
  ASSERT_TRUE(never.dead_letter);
  EXPECT_EQ(never.dead_letter->reason, DeadReason::rejected);
  EXPECT_EQ(never.dead_letter->error, "the handler gave no reason");
}

TEST(AfterFailure, a_handlers_delay_is_from_0_to_3650_days) {
  const auto delay_of = [](milliseconds delay) {
    return after_failure(plan("t.dlq"), {.why = "no", .outcome = Outcome::retry_after(delay)}, 1, 0).delay;
  };
  const milliseconds longest = std::chrono::hours(24 * 3650);
  EXPECT_EQ(delay_of(milliseconds::max()), longest);
  EXPECT_EQ(delay_of(milliseconds(9'000'000'000'000)), longest);
  EXPECT_EQ(delay_of(longest - milliseconds(1)), longest - milliseconds(1));
  EXPECT_EQ(delay_of(milliseconds(-1)), milliseconds(0));
  EXPECT_EQ(delay_of(milliseconds::min()), milliseconds(0));
}

TEST(AfterFailure, a_message_that_must_not_run_becomes_a_dead_letter) {
  const auto next = after_failure(plan("t.dlq"), {.dead_letter = DeadLetter{DeadReason::too_old, "old", 0}}, 1, 0);
  ASSERT_TRUE(next.dead_letter);
  EXPECT_EQ(next.dead_letter->reason, DeadReason::too_old);
}

struct NoText : std::exception {
  [[nodiscard]] const char* what() const noexcept override { return nullptr; }
};

TEST(AfterFailure, an_exception_without_a_text_is_a_failure_of_its_message) {
  const auto failure = guarded([] { throw NoText(); });
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->kind, Failure::Kind::failed);
  EXPECT_EQ(failure->why, "the handler threw an exception whose what() returned a null pointer");
}

}  // namespace
}  // namespace turnstile::detail
