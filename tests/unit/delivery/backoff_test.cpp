#include "delivery/backoff.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <limits>

namespace turnstile::detail {
namespace {

using std::chrono::milliseconds;

TEST(BackoffTest, doubles_up_to_the_cap) {
  const RetryPolicy policy{10, milliseconds(100), milliseconds(1'000)};
  const std::vector<int> expected{100, 200, 400, 800, 1'000, 1'000};
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(backoff(policy, static_cast<int>(i) + 1, 0.0), milliseconds(expected[i])) << "after " << i + 1;
  }
}

TEST(BackoffTest, chance_takes_off_up_to_half) {
  const RetryPolicy policy{5, milliseconds(100), milliseconds(1'000)};
  EXPECT_EQ(backoff(policy, 1, 0.5), milliseconds(75));
  EXPECT_EQ(backoff(policy, 1, 1.0), milliseconds(50));
}

TEST(BackoffTest, neither_many_attempts_nor_a_huge_cap_overflow) {
  const RetryPolicy policy{5, milliseconds(3), milliseconds::max()};
  EXPECT_EQ(backoff(policy, std::numeric_limits<int>::max(), 0.0), milliseconds::max());
}

RC_GTEST_PROP(BackoffTest, stays_between_half_the_first_delay_and_the_cap, ()) {
  const RetryPolicy policy{5, milliseconds(*rc::gen::inRange(1, 10'000)),
                           milliseconds(*rc::gen::inRange(10'000, 1'000'000))};
  const int failed = *rc::gen::inRange(1, 1'000);
  const double random = *rc::gen::inRange(0, 1'000) / 1'000.0;
  const auto delay = backoff(policy, failed, random);
  RC_ASSERT(delay >= policy.first / 2);
  RC_ASSERT(delay <= policy.cap);
  RC_ASSERT(backoff(policy, failed + 1, random) >= delay);
}

}  // namespace
}  // namespace turnstile::detail
