// How processes divide a limit in PostgreSQL: max-min fair shares, and turns for a remainder that cannot be divided.

#include "adapters/postgres/src/limits/limiter_shares.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <numeric>
#include <vector>

namespace turnstile::postgres {
namespace {

using namespace std::chrono_literals;
using Members = std::vector<LimiterMember>;

constexpr auto kTurn = std::chrono::microseconds(80ms);

LimiterMember holds(std::int64_t held, std::int64_t waiting = 0, std::chrono::microseconds held_for = 0ms) {
  LimiterMember member;
  member.held = held;
  member.waiting = waiting;
  member.held_for = held_for;
  return member;
}
LimiterMember waits(std::int64_t waiting, std::chrono::microseconds waited_for = 0ms) {
  LimiterMember member;
  member.waiting = waiting;
  member.waited_for = waited_for;
  return member;
}

/// The share of each process, as each of them computes it.
std::vector<std::int64_t> shares(std::int64_t limit, Members members) {
  std::vector<std::int64_t> all;
  for (auto& member : members) {
    member.me = true;
    all.push_back(fair_share(limit, members, kTurn));
    member.me = false;
  }
  return all;
}

using Shares = std::vector<std::int64_t>;

TEST(LimiterShares, who_is_alone_may_have_all) { EXPECT_EQ(shares(16, {holds(3, 1)}), Shares({16})); }

TEST(LimiterShares, while_nobody_else_waits_there_is_nothing_to_share) {
  EXPECT_EQ(shares(16, {holds(10, 2), holds(6)})[0], 16);
}

TEST(LimiterShares, all_want_more_than_there_is) {
  EXPECT_EQ(shares(16, {holds(16, 4), waits(9), waits(9), waits(9)}), Shares({4, 4, 4, 4}));
}

TEST(LimiterShares, who_wants_little_gets_it_and_the_rest_is_divided) {
  EXPECT_EQ(shares(16, {waits(2), holds(14, 20), waits(30)}), Shares({2, 7, 7}));
}

TEST(LimiterShares, what_is_left_over_may_be_had) { EXPECT_EQ(shares(16, {waits(2), waits(3)}), Shares({13, 14})); }

TEST(LimiterShares, what_cannot_be_divided_goes_to_who_waits_longest) {
  EXPECT_EQ(shares(1, {waits(5, 10ms), waits(5, 30ms), waits(5, 20ms)}), Shares({0, 1, 0}));
  EXPECT_EQ(shares(2, {waits(5, 10ms), waits(5, 30ms), waits(5, 20ms)}), Shares({0, 1, 1}));
}

TEST(LimiterShares, a_turn_is_kept_for_its_time_and_then_handed_on) {
  EXPECT_EQ(shares(1, {holds(1, 5, 79ms), waits(5, 500ms)}), Shares({1, 0}));
  EXPECT_EQ(shares(1, {holds(1, 5, 80ms), waits(5, 1ms)}), Shares({0, 1}));
}

TEST(LimiterShares, of_two_whose_turn_is_over_the_first_to_come_goes_first) {
  EXPECT_EQ(shares(2, {holds(1, 5, 90ms), holds(1, 5, 100ms), waits(5, 10ms)}), Shares({1, 0, 1}));
}

TEST(LimiterShares, a_limit_of_nothing_is_nothing_for_all) {
  EXPECT_EQ(shares(0, {holds(2, 5), waits(5)}), Shares({0, 0}));
}

TEST(LimiterShares, whatever_they_want_all_that_is_wanted_is_given_and_no_more) {
  EXPECT_TRUE(rc::check([] {
    const auto limit = *rc::gen::inRange<std::int64_t>(0, 40);
    const auto count = *rc::gen::inRange<std::size_t>(2, 7);
    Members members;
    for (std::size_t i = 0; i < count; ++i) {
      LimiterMember member = holds(*rc::gen::inRange<std::int64_t>(0, 12), *rc::gen::inRange<std::int64_t>(1, 30),
                                   std::chrono::milliseconds(*rc::gen::inRange(0, 200)));
      // Different times, because with equal times the order in which each has read them would decide.
      member.waited_for = std::chrono::milliseconds(*rc::gen::inRange(0, 20) * 10 + static_cast<int>(i));
      member.held_for += std::chrono::microseconds(i);
      members.push_back(member);
    }
    const auto all = shares(limit, members);
    std::int64_t wanted = 0, useful = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const auto wants = members[i].held + members[i].waiting;
      wanted += wants;
      useful += std::min(all[i], wants);
      for (std::size_t j = 0; j < count; ++j) {  // no process lacks a permit while another one has two more than it
        if (all[i] < wants) RC_ASSERT(std::min(all[j], members[j].held + members[j].waiting) <= all[i] + 1);
      }
    }
    RC_ASSERT(useful == std::min(limit, wanted));
  }));
}

}  // namespace
}  // namespace turnstile::postgres
