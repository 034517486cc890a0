// How permits are divided (tokens/shares.hpp).

#include "tokens/shares.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <numeric>
#include <vector>

namespace turnstile::tokens {
namespace {

struct DividedShares {
  std::vector<Count> shares;
  bool starved = false;
};

DividedShares divided(Count capacity, std::vector<Wish> wishes) {
  DividedShares result;
  result.starved = divide(capacity, wishes);
  for (const Wish& wish : wishes) result.shares.push_back(wish.share);
  return result;
}

std::vector<Count> shares(Count capacity, std::vector<Wish> wishes) {
  return divided(capacity, std::move(wishes)).shares;
}

using Shares = std::vector<Count>;

TEST(TokensShares, who_wants_little_gets_it_and_the_others_share_the_rest) {
  EXPECT_EQ(shares(10, {{.wants = 2}, {.wants = 20}, {.wants = 20}}), (Shares{2, 4, 4}));
  EXPECT_EQ(shares(10, {{.wants = 2}, {.wants = 3}}), (Shares{2, 3}));
}

TEST(TokensShares, what_cannot_be_divided_goes_to_the_first_in_line) {
  EXPECT_EQ(shares(8, {{.wants = 9}, {.wants = 9}, {.wants = 9}}), (Shares{3, 3, 2}));
}

TEST(TokensShares, are_in_proportion_to_the_weights) {
  EXPECT_EQ(shares(12, {{.wants = 99, .weight = 1}, {.wants = 99, .weight = 3}}), (Shares{3, 9}));
  EXPECT_EQ(shares(12, {{.wants = 99, .weight = 1}, {.wants = 4, .weight = 3}}), (Shares{8, 4}));
}

TEST(TokensShares, what_is_left_of_a_step_goes_to_all_by_one) {
  EXPECT_EQ(shares(7, {{.wants = 9, .weight = 3}, {.wants = 9, .weight = 3}, {.wants = 9, .weight = 3}}),
            (Shares{3, 2, 2}));
}

TEST(TokensShares, with_more_members_than_permits_the_first_in_line_have_them) {
  const DividedShares result = divided(2, {{.wants = 5}, {.wants = 5}, {.wants = 5}});
  EXPECT_EQ(result.shares, (Shares{1, 1, 0}));
  EXPECT_TRUE(result.starved);
  EXPECT_FALSE(divided(3, {{.wants = 5}, {.wants = 5}, {.wants = 5}}).starved);
}

TEST(TokensShares, urgent_wishes_go_first) {
  EXPECT_EQ(shares(1, {{.wants = 5}, {.wants = 5, .urgent = 1}}), (Shares{0, 1}));
  EXPECT_EQ(shares(10, {{.wants = 9}, {.wants = 9, .urgent = 7}}), (Shares{3, 7}));
}

TEST(TokensShares, a_seat_is_the_least_that_helps) {
  EXPECT_EQ(shares(4, {{.wants = 8, .least = 3}, {.wants = 8, .least = 3}}), (Shares{4, 0}));
  // A member that does not fit is passed over.
  EXPECT_EQ(shares(2, {{.wants = 8, .least = 3}, {.wants = 8}}), (Shares{0, 2}));
  // A least above the sum of the wishes asks for no more than that sum.
  EXPECT_EQ(shares(4, {{.wants = 2, .least = 9}}), (Shares{2}));
}

TEST(TokensShares, nothing_to_divide_and_nobody_to_divide_among) {
  EXPECT_EQ(shares(0, {{.wants = 1}}), (Shares{0}));
  EXPECT_TRUE(divided(0, {{.wants = 1}}).starved);
  EXPECT_EQ(shares(5, {}), Shares{});
  EXPECT_EQ(shares(5, {{.wants = 0}}), (Shares{0}));
}

TEST(TokensShares, a_billion_permits_among_a_thousand_members) {
  std::vector<Wish> wishes(1'000, {.wants = kMostPermits, .urgent = kMostPermits, .least = 1, .weight = 1'000});
  divide(kMostPermits, wishes);
  for (const Wish& wish : wishes) EXPECT_EQ(wish.share, 1'000'000U);
}

std::vector<Wish> any_wishes() {
  std::vector<Wish> wishes;
  for (int i = *rc::gen::inRange(0, 7); i > 0; --i) {
    const auto wants =
        *rc::gen::weightedOneOf<Count>({{9, rc::gen::inRange<Count>(0, 20)}, {1, rc::gen::just(kMostPermits)}});
    wishes.push_back({.wants = wants,
                      .urgent = *rc::gen::inRange<Count>(0, 5),
                      .least = *rc::gen::inRange<Count>(0, 5),
                      .weight = *rc::gen::inRange<Count>(1, 5)});
  }
  return wishes;
}

RC_GTEST_PROP(TokensShares, never_more_than_there_is_and_none_is_left_that_somebody_seated_wants, ()) {
  const Count capacity = *rc::gen::inRange<Count>(0, 40);
  std::vector<Wish> wishes = any_wishes();
  const bool starved = divide(capacity, wishes);
  Count sum = 0;
  bool unseated = false, hungry = false;
  for (const Wish& wish : wishes) {
    RC_ASSERT(wish.share <= wish.wants);
    sum += wish.share;
    unseated = unseated || (wish.wants > 0 && wish.share == 0);
    hungry = hungry || (wish.share > 0 && wish.share < wish.wants);
  }
  RC_ASSERT(sum <= capacity);
  RC_ASSERT(unseated == starved);
  if (hungry) RC_ASSERT(sum == capacity);
}

/// The simulator found this: three members of weight 3 once got 3, 3 and 1 of 7.
RC_GTEST_PROP(TokensShares, only_the_proportion_of_weights_matters, ()) {
  const Count capacity = *rc::gen::inRange<Count>(0, 60);
  std::vector<Wish> wishes = any_wishes();
  std::vector<Wish> heavier = wishes;
  const Count factor = *rc::gen::inRange<Count>(1, 200);
  for (Wish& wish : heavier) wish.weight *= factor;
  divide(capacity, wishes);
  divide(capacity, heavier);
  for (std::size_t i = 0; i < wishes.size(); ++i) RC_ASSERT(wishes[i].share == heavier[i].share);
}

/// Max-min fair: a member that could use more has, for its weight, at most one indivisible step less than any other.
/// (Its seat of one permit comes first, whatever the weights are.)
RC_GTEST_PROP(TokensShares, are_max_min_fair, ()) {
  std::vector<Wish> wishes = any_wishes();
  for (Wish& wish : wishes) wish.urgent = wish.least = 0;
  divide(*rc::gen::inRange<Count>(0, 60), wishes);
  for (const Wish& poor : wishes) {
    if (poor.share == 0 || poor.share == poor.wants) continue;
    for (const Wish& rich : wishes) {
      if (rich.share > 1) RC_ASSERT(rich.share * poor.weight <= (poor.share + 1) * rich.weight + poor.weight);
    }
  }
}

}  // namespace
}  // namespace turnstile::tokens
