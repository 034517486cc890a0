// A limit that a program sets, until the log has accepted it.

#include "permits/limit_changes.hpp"

#include <gtest/gtest.h>

#include "tests/unit/permits/divided_fixture.hpp"
#include "turnstile/testing/token_log.hpp"

namespace turnstile::detail {
namespace {

using tokens::Effects;
using tokens::Micros;

TEST(LimitChanges, what_was_not_accepted_is_written_again_after_a_pause) {
  const auto topic = std::make_shared<testing::MemoryTokenTopic>();
  testing::MemoryTokenLog log(topic);
  LimitChanges changes;
  const auto change = std::make_shared<LimitChange>();
  change->limiter = "psp";
  change->limit = 2;
  changes.add(change);
  tokens::State state;
  Micros now = 1'000'000;
  changes.send(log, state, now);
  ASSERT_EQ(topic->end(), 1);
  Effects stale;
  stale.outcome = Effects::Outcome::stale;
  changes.read(change->event, stale, state, now);
  EXPECT_FALSE(change->over);
  for (Micros end = now + 49'000; now < end; now += 1'000) changes.send(log, state, now);
  EXPECT_EQ(topic->end(), 1);
  changes.send(log, state, now + 151'000);
  EXPECT_EQ(topic->end(), 2);
}

TEST(LimitChanges, a_part_that_is_not_open_yet_is_not_flooded) {
  test::DividedCluster cluster;
  const auto domain = cluster.join(), other = cluster.join();
  const auto psp = domain->open("psp", 2);
  Permit held = test::take_one(*psp);
  cluster.divide();
  const auto home = cluster.log->part(tokens::part_of("psp", test::kParts));
  EXPECT_TRUE(test::eventually([&] { return cluster.reader()->parts() == test::kParts; }));
  EXPECT_TRUE(test::eventually([&] { return !other->set_limit("psp", 1, std::chrono::milliseconds(200)); }));
  EXPECT_LT(home->end(), 20);
  held.give_back();
  EXPECT_TRUE(other->set_limit("psp", 1, std::chrono::seconds(20)));
  EXPECT_EQ(test::take_all(*psp, 1).size(), 1U);
}

}  // namespace
}  // namespace turnstile::detail
