// When the circuit breaker of a handler opens, probes and closes.

#include "delivery/handler_breaker.hpp"

#include <gtest/gtest.h>

namespace turnstile::detail {
namespace {

using namespace std::chrono_literals;
using Change = HandlerBreaker::Change;

class HandlerBreakerTest : public ::testing::Test {
 protected:
  /// Fails `times` calls. Returns the last result.
  HandlerBreaker::Caught fail(int times) {
    HandlerBreaker::Caught last;
    for (int i = 0; i < times; ++i) last = breaker.failed(now, "no answer");
    return last;
  }
  void succeed(int times) {
    for (int i = 0; i < times; ++i) EXPECT_EQ(breaker.succeeded(now), Change::none);
  }

  HandlerBreaker breaker{{.percent = 50, .least = 10, .window = 10s, .open_for = 30s}};
  HandlerBreaker::Time now{1000s};
};

TEST_F(HandlerBreakerTest, opens_at_the_threshold_and_catches_that_failure) {
  succeed(5);
  EXPECT_FALSE(fail(4).caught);
  EXPECT_TRUE(breaker.is_closed());
  const auto last = fail(1);
  EXPECT_TRUE(last.caught);
  EXPECT_EQ(last.change, Change::opened);
  EXPECT_TRUE(breaker.is_open(now));
  EXPECT_TRUE(breaker.waits(now));
  EXPECT_EQ(breaker.next_probe(), now + 30s);
  EXPECT_EQ(breaker.why(), "5 of 10 calls failed within 10s, the last one: no answer");
}

TEST_F(HandlerBreakerTest, does_not_open_below_the_ratio_or_with_few_calls) {
  EXPECT_FALSE(fail(9).caught);
  succeed(10);
  EXPECT_FALSE(fail(0).caught);
  EXPECT_TRUE(breaker.is_closed()) << "9 of 19";
  HandlerBreaker other({.percent = 50, .least = 10, .window = 10s, .open_for = 30s});
  for (int i = 0; i < 9; ++i) EXPECT_FALSE(other.failed(now, "").caught);
}

TEST_F(HandlerBreakerTest, forgets_calls_that_are_older_than_the_window) {
  fail(9);
  now += 11s;
  EXPECT_FALSE(fail(1).caught) << "1 of 1";
  EXPECT_TRUE(breaker.is_closed());
  now += 5s;
  EXPECT_TRUE(fail(9).caught) << "10 of 10 within 10 s";
}

TEST_F(HandlerBreakerTest, what_began_before_it_opened_is_caught_and_tells_nothing) {
  fail(10);
  now += 1s;
  EXPECT_TRUE(fail(1).caught);
  EXPECT_EQ(breaker.succeeded(now), Change::none);
  EXPECT_EQ(breaker.next_probe(), now + 29s);
}

TEST_F(HandlerBreakerTest, one_probe_at_a_time_and_three_that_succeed_close_it) {
  fail(10);
  EXPECT_FALSE(breaker.begin_probe(now));
  now += 30s;
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(breaker.waits(now));
    EXPECT_TRUE(breaker.begin_probe(now));
    EXPECT_TRUE(breaker.waits(now)) << "a probe runs";
    EXPECT_FALSE(breaker.is_open(now)) << "it may call its handler";
    EXPECT_EQ(breaker.succeeded(now), i < 2 ? Change::none : Change::closed);
    breaker.leave();
  }
  EXPECT_TRUE(breaker.is_closed());
  EXPECT_FALSE(fail(1).caught) << "it begins to count anew";
}

TEST_F(HandlerBreakerTest, a_probe_that_fails_opens_it_again) {
  fail(10);
  now += 30s;
  EXPECT_TRUE(breaker.begin_probe(now));
  EXPECT_EQ(breaker.succeeded(now), Change::none);
  const auto probe = fail(1);
  breaker.leave();
  EXPECT_TRUE(probe.caught);
  EXPECT_EQ(probe.change, Change::none);
  EXPECT_EQ(breaker.next_probe(), now + 30s);
}

TEST_F(HandlerBreakerTest, a_probe_that_hangs_makes_room_for_another) {
  fail(10);
  now += 30s;
  EXPECT_TRUE(breaker.begin_probe(now));
  EXPECT_EQ(breaker.next_probe(), now + 30s);
  now += 30s;
  EXPECT_FALSE(breaker.waits(now));
}

TEST_F(HandlerBreakerTest, tells_others_and_hears_from_them) {
  EXPECT_FALSE(breaker.take_news(now));
  EXPECT_EQ(breaker.hear({}, now), Change::none);
  fail(10);
  EXPECT_EQ(breaker.hear({}, now), Change::none) << "the store does not know it yet";
  now += 10s;
  const auto opened = breaker.take_news(now);
  ASSERT_TRUE(opened && opened->left);
  EXPECT_EQ(*opened->left, 20s);
  EXPECT_FALSE(breaker.take_news(now));
  breaker.again();
  EXPECT_TRUE(breaker.take_news(now));
  EXPECT_EQ(breaker.hear(20s, now), Change::none);
  EXPECT_EQ(breaker.hear(5s, now), Change::none);
  EXPECT_EQ(breaker.next_probe(), now + 5s);
  EXPECT_EQ(breaker.hear({}, now), Change::closed) << "another process, or an operator";
  EXPECT_TRUE(breaker.is_closed());
}

TEST_F(HandlerBreakerTest, is_opened_and_half_opened_by_others) {
  EXPECT_EQ(breaker.hear(20s, now), Change::opened);
  EXPECT_TRUE(breaker.is_open(now));
  EXPECT_FALSE(breaker.take_news(now)) << "they know";
  EXPECT_EQ(breaker.hear({}, now), Change::closed);
  EXPECT_EQ(breaker.hear(0s, now), Change::opened);
  EXPECT_FALSE(breaker.is_open(now)) << "half open";
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(breaker.begin_probe(now));
    EXPECT_EQ(breaker.succeeded(now), i < 2 ? Change::none : Change::closed);
    EXPECT_EQ(breaker.hear(0s, now), Change::none);
    breaker.leave();
  }
  const auto news = breaker.take_news(now);
  ASSERT_TRUE(news);
  EXPECT_FALSE(news->left) << "it is closed";
}

TEST_F(HandlerBreakerTest, probes_in_its_time_although_the_clock_of_the_store_was_set_back) {
  EXPECT_EQ(breaker.hear(1h, now), Change::opened);
  EXPECT_EQ(breaker.next_probe(), now + 30s);
  now += 10s;
  EXPECT_EQ(breaker.hear(1h, now), Change::none);
  EXPECT_EQ(breaker.next_probe(), now + 20s);
  now += 20s;
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(breaker.begin_probe(now));
    EXPECT_EQ(breaker.succeeded(now), i < 2 ? Change::none : Change::closed);
    EXPECT_EQ(breaker.hear(1h, now), Change::none);
    breaker.leave();
  }
  EXPECT_TRUE(breaker.is_closed());
}

}  // namespace
}  // namespace turnstile::detail
