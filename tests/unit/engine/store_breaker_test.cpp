// The circuit breaker in front of the store, by a clock of the test's own.

#include "engine/store_breaker.hpp"

#include <gtest/gtest.h>

namespace turnstile::detail {
namespace {

using namespace std::chrono_literals;
using Entry = StoreBreaker::Entry;

struct StoreBreakerTest : ::testing::Test {
  [[nodiscard]] Entry enter(StoreDownPolicy policy = StoreDownPolicy::wait) { return breaker.enter(now, policy); }

  StoreBreaker breaker;
  SteadyTime now{1h};
};

TEST_F(StoreBreakerTest, lets_all_units_start_while_the_store_answers) {
  EXPECT_EQ(enter(), Entry::with_store);
  EXPECT_EQ(enter(StoreDownPolicy::run), Entry::with_store);
  EXPECT_FALSE(breaker.answered(now)) << "nothing changed";
}

TEST_F(StoreBreakerTest, lets_units_wait_or_run_unclaimed_between_probes) {
  EXPECT_TRUE(breaker.failed(now, now, 0));
  EXPECT_EQ(enter(), Entry::waits);
  EXPECT_EQ(enter(StoreDownPolicy::run), Entry::unclaimed);
  now += 100ms;
  EXPECT_EQ(enter(StoreDownPolicy::run), Entry::as_probe) << "a topic that fails open sends probes, too";
  EXPECT_EQ(enter(), Entry::waits) << "one probe at a time";
  EXPECT_EQ(enter(StoreDownPolicy::run), Entry::unclaimed);
  EXPECT_TRUE(breaker.answered(now));
  EXPECT_EQ(enter(), Entry::with_store);
}

TEST_F(StoreBreakerTest, sends_another_probe_after_one_that_did_not_start) {
  breaker.failed(now, now, 0);
  now += 100ms;
  ASSERT_EQ(enter(), Entry::as_probe);
  EXPECT_EQ(breaker.next_probe(), SteadyTime::max());
  breaker.leave();
  EXPECT_EQ(enter(), Entry::as_probe);
}

TEST_F(StoreBreakerTest, doubles_the_time_between_probes_up_to_5_s_and_begins_anew) {
  for (const auto delay : {100ms, 200ms, 400ms, 800ms, 1'600ms, 3'200ms, 5'000ms, 5'000ms}) {
    breaker.failed(now, now, 0);
    EXPECT_EQ(breaker.next_probe(), now + delay);
    now += delay;
  }
  breaker.failed(now, now, 0.5);
  EXPECT_EQ(breaker.next_probe(), now + 3'750ms) << "up to half of the delay is random";
  breaker.answered(now);
  breaker.failed(now, now, 0);
  EXPECT_EQ(breaker.next_probe(), now + 100ms);
}

TEST_F(StoreBreakerTest, is_not_opened_again_by_what_began_before_it_closed) {
  const SteadyTime before = now;
  now += 1s;
  EXPECT_TRUE(breaker.failed(before, now, 0));
  now += 1s;
  EXPECT_TRUE(breaker.answered(now));
  EXPECT_FALSE(breaker.failed(before, now + 1s, 0));
  EXPECT_EQ(enter(), Entry::with_store);
  EXPECT_TRUE(breaker.failed(now, now + 1s, 0));
  EXPECT_EQ(enter(), Entry::waits);
}

}  // namespace
}  // namespace turnstile::detail
