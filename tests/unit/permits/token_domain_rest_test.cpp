// A member of a domain that does nothing, or can do nothing, for long.

#include <gtest/gtest.h>

#include <utility>

#include "tests/unit/permits/token_domain_fixture.hpp"

namespace turnstile {
namespace {

using namespace std::chrono_literals;
using test::Cluster;
using test::eventually;
using test::take_all;

/// A permit's number shows how many lives its pool has had. Each of them costs memory and time.
TEST(TokenDomain, an_outage_of_the_log_is_one_loss_however_long_it_lasts) {
  Cluster cluster;
  cluster.settings.lease = 200ms;
  const auto a = cluster.join();
  const auto psp = a->open("psp", 2);
  auto held = take_all(*psp, 1);
  const std::uint64_t before = held.front().token() >> 40;
  cluster.topic->away(true);
  ASSERT_TRUE(eventually([&] { return held.front().lost().stop_requested(); }));
  held.clear();
  // The member's thread looks at the log each millisecond. It tries to write less and less often.
  EXPECT_TRUE(eventually([&] { return a->log()->epochs >= 4; }));
  cluster.topic->away(false);
  const auto again = take_all(*psp, 1);
  EXPECT_LE((again.front().token() >> 40) - before, 3U);
}

TEST(TokenDomain, a_member_at_rest_counts_as_available_and_starts_again_at_once) {
  Cluster cluster;
  cluster.settings.lease = 200ms;
  const auto a = cluster.join();
  const auto psp = a->open("psp", 2);
  take_all(*psp, 1).clear();
  std::int64_t written = 0;
  // Its lease has ended, and it has not written for longer than one.
  EXPECT_TRUE(eventually([&] {
    const std::int64_t now = a->permits().position;
    const bool rests = now == std::exchange(written, now);
    return rests && !eventually([&] { return a->permits().position != now; }, 300ms);
  }));
  EXPECT_EQ(a->health().state, LimitersHealth::State::working);
  EXPECT_TRUE(a->log()->available);
  EXPECT_EQ(take_all(*psp, 2).size(), 2U);
}

}  // namespace
}  // namespace turnstile
