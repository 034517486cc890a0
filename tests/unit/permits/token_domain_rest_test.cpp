// A member of a domain that does nothing, or can do nothing, for long.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "tests/support/captured_log.hpp"
#include "tests/unit/permits/divided_fixture.hpp"
#include "tokens/snapshot.hpp"

namespace turnstile {
namespace {

using namespace std::chrono_literals;
using test::Cluster;
using test::DividedCluster;
using test::DomainByHand;
using test::eventually;
using test::take_all;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

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

/// Their lease ends late, because a member at rest may be silent for several.
TEST(TokenDomain, members_that_died_at_rest_do_not_stop_the_snapshots) {
  DividedCluster cluster;
  cluster.settings.lease = 60s;
  cluster.settings.snapshot_every = 8;
  DomainByHand first{testing::open_parts(cluster.log), cluster}, second{testing::open_parts(cluster.log), cluster};
  first.take(*first.domain->open("a", 2), 1).clear();
  second.take(*second.domain->open("b", 2), 1).clear();
  DomainByHand third{testing::open_parts(cluster.log), cluster};
  third.take(*third.domain->open("psp", 2), 1).clear();
  const std::int64_t begin = third.domain->permits().position;
  const auto reader = cluster.reader();
  for (int limit = 3; limit < 43; ++limit) {
    ASSERT_TRUE(reader->set_limit("psp", limit, 20s));
    third.round();
  }
  const auto snapshot = testing::open_parts(cluster.log)(0)->snapshot();
  ASSERT_TRUE(snapshot);
  const auto state = tokens::restore(snapshot->bytes);
  ASSERT_TRUE(state);
  EXPECT_GE(state->last, begin + 16) << "it is of the first members";
}

TEST(TokenDomain, a_pause_that_is_shorter_than_the_lease_is_no_silence_of_the_log) {
  test::CapturedLog lines;
  DividedCluster cluster;
  cluster.quiet = std::make_shared<spdlog::logger>("t", lines.sink());
  cluster.settings.lease = 20s;
  DomainByHand process{testing::open_parts(cluster.log), cluster};
  const auto psp = process.domain->open("psp", 2);
  const auto held = process.take(*psp, 1);
  process.suspended += 2'000'000;
  process.round();
  EXPECT_THAT(process.domain->health().why, HasSubstr("was suspended"));
  EXPECT_TRUE(eventually([&] {
    process.round();
    return process.domain->health().state == LimitersHealth::State::working;
  }));
  EXPECT_THAT(lines.str(), AllOf(HasSubstr("code=member_paused"), Not(HasSubstr("code=token_log_silent"))));

  cluster.log->part(0)->away(true);
  process.suspended += 2'000'000;
  process.round();
  EXPECT_THAT(lines.str(), Not(HasSubstr("code=token_log_silent")));
  for (int i = 0; i < 24; ++i) {
    process.suspended += 900'000;
    process.round();
  }
  EXPECT_THAT(lines.str(), HasSubstr("code=token_log_silent"));
  EXPECT_THAT(process.domain->health().why, HasSubstr("has come back within its lease"));
}

}  // namespace
}  // namespace turnstile
