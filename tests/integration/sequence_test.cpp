// Mode by_offset on the real PostgreSQL and the real Apache Kafka: records without ids, and one row for each partition.

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/world.hpp"

namespace turnstile::test {
namespace {

using namespace std::chrono_literals;

class SequenceFixture {
 public:
  SequenceFixture()
      : world_(WorldOptions{.partitions = 3, .session_timeout_ms = 3'000, .handler_timeout = "2s"}),
        toml_(world_.toml("mode = \"by_offset\"\nbatch = 20\n", "lock_timeout = \"1s\"\n")) {}
  World* operator->() noexcept { return &world_; }
  Process consumer(const std::map<std::string, std::string>& environment = {}) {
    return world_.consumer(toml_, environment);
  }
  /// Every record has an effect. That includes the copies: without ids they are records like any other.
  void expect_all(std::int64_t records) {
    EXPECT_TRUE(eventually([&] { return world_.effects().rows == records && world_.caught_up(); }, 90s))
        << world_.effects().rows << " of " << records << "\n"
        << world_.output();
    EXPECT_EQ(world_.query("SELECT count(*) FROM (SELECT DISTINCT record_partition, record_offset FROM effect) e"),
              std::to_string(records))
        << "an effect was made twice";
    EXPECT_EQ(world_.query("SELECT count(*) FROM inbox"), "0");
    EXPECT_EQ(world_.query("SELECT count(*) FROM progress"), "3") << "one row of a partition";
    EXPECT_EQ(world_.out_of_order(), 0);
  }

 private:
  World world_;
  std::string toml_;
};

class SequenceKilledAt : public ::testing::TestWithParam<const char*> {};

TEST_P(SequenceKilledAt, loses_nothing_and_repeats_nothing) {
  TURNSTILE_NEEDS_SERVERS();
#if !defined(TURNSTILE_FAILPOINTS)
  GTEST_SKIP() << "this build has no failpoints";
#endif
  SequenceFixture world;
  const auto records = world->publish(500);
  const char* const times = std::string_view(GetParam()) == "before-offset-commit" ? ":1" : ":3";
  Process victim = world.consumer({{"TURNSTILE_FAILPOINT", GetParam() + std::string(times)}});
  EXPECT_EQ(victim.wait(60s), -SIGKILL) << "the victim did not come by " << GetParam() << "\n" << world->output();
  Process successor = world.consumer();
  world.expect_all(records);
  EXPECT_EQ(world->output().find("lower watermark"), std::string::npos) << "a false alarm\n" << world->output();
  successor.signal(SIGTERM);
  EXPECT_EQ(successor.wait(20s), 0);
}

INSTANTIATE_TEST_SUITE_P(EachStep, SequenceKilledAt,
                         ::testing::Values("after-claim", "after-handler", "before-commit", "after-commit",
                                           "before-offset-commit", "before-release"),
                         step_name);

class DeadRecordsKilledAt : public ::testing::TestWithParam<const char*> {};

/// A record with a dead letter that waits for a replay has no effect, although the next process could make it.
TEST_P(DeadRecordsKilledAt, have_an_effect_or_a_dead_letter) {
  TURNSTILE_NEEDS_SERVERS();
#if !defined(TURNSTILE_FAILPOINTS)
  GTEST_SKIP() << "this build has no failpoints";
#endif
  SequenceFixture world;
  auto fine = world->publish(50, "a");
  const int failing = 5;
  for (int i = 0; i < failing; ++i) world->publish("bad" + std::to_string(i), "throw", "1");
  fine += world->publish(50, "b");
  Process victim = world.consumer({{"TURNSTILE_FAILPOINT", GetParam() + std::string(":2")}});
  EXPECT_EQ(victim.wait(60s), -SIGKILL) << "the victim did not come by " << GetParam() << "\n" << world->output();
  const auto dead = std::stoll(world->query("SELECT count(*) FROM dead"));
  EXPECT_EQ(dead, std::string_view(GetParam()) == "after-dead-letter" ? 2 : 1);
  Process successor = world.consumer({{"HEALED", "1"}});
  world.expect_all(fine + failing - dead);
  EXPECT_EQ(world->query("SELECT count(*) FROM dead"), std::to_string(dead));
  EXPECT_EQ(world->query("SELECT count(*) FROM dead d JOIN fence f USING (slot) JOIN effect e ON e.record_partition = "
                         "f.partition AND e.record_offset = d.record_offset"),
            "0");
  successor.signal(SIGTERM);
  EXPECT_EQ(successor.wait(20s), 0);
}

INSTANTIATE_TEST_SUITE_P(EachStep, DeadRecordsKilledAt,
                         ::testing::Values("before-dead-letter", "dead-letter-sent", "after-dead-letter"), step_name);

TEST(Sequence, a_failing_message_holds_its_partition_and_is_a_dead_letter_in_the_end) {
  TURNSTILE_NEEDS_SERVERS();
  SequenceFixture world;
  const auto before = world->publish(30, "a");
  world->publish("bad", "throw", "1");
  const auto behind = world->publish(30, "b");
  Process consumer = world.consumer();
  world.expect_all(before + behind);
  EXPECT_EQ(world->query("SELECT reason FROM dead"), "failed");
  consumer.signal(SIGTERM);
  EXPECT_EQ(consumer.wait(20s), 0);
}

}  // namespace
}  // namespace turnstile::test
