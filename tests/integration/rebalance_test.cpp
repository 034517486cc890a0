// Members that join, leave, die and freeze while the group is under load, on the real PostgreSQL and the real Apache
// Kafka.

#include <gtest/gtest.h>

#include "tests/support/world.hpp"

namespace turnstile::test {
namespace {

using namespace std::chrono_literals;

void expect_settled(World& world, std::int64_t distinct) {
  EXPECT_TRUE(eventually([&] { return world.effects().distinct == distinct; }, 90s))
      << world.effects().distinct << " of " << distinct << "\n"
      << world.output();
  EXPECT_TRUE(eventually([&] { return world.caught_up(); }, 30s)) << world.output();
  EXPECT_EQ(world.effects().rows, distinct) << "an effect was made twice";
  EXPECT_EQ(world.effects().distinct, distinct);
  EXPECT_EQ(world.out_of_order(), 0) << "effects of a key out of the order of their offsets";
}

std::int64_t effects_of(const World& world, const Process& process) {
  return std::stoll(world.query("SELECT count(*) FROM effect WHERE pid = " + std::to_string(process.pid())));
}

/// Progress, not time, decides when the next thing happens. So it happens under load, however fast the machine is.
TEST(Rebalance, loses_doubles_and_reorders_nothing_while_members_join_leave_and_die) {
  TURNSTILE_NEEDS_SERVERS();
  constexpr std::int64_t kMessages = 2000;
  World world(WorldOptions{.partitions = 6, .session_timeout_ms = 4'000, .handler_timeout = "3s"});
  world.publish(kMessages);
  const std::string toml = world.toml("order = \"key\"\nlimit = 3", "lock_timeout = \"2s\"\n");
  const std::map<std::string, std::string> slow{{"EFFECT_MS", "10"}};
  Process stays = world.consumer(toml, slow);
  Process leaves = world.consumer(toml, slow);
  ASSERT_TRUE(eventually([&] { return effects_of(world, stays) > 0 && effects_of(world, leaves) > 0; }, 60s))
      << world.output();
  Process dies = world.consumer(toml, slow);
  ASSERT_TRUE(eventually([&] { return effects_of(world, dies) > 0; }, 60s)) << world.output();
  EXPECT_LT(world.effects().distinct, kMessages) << "the third joined too late to be under load";
  leaves.signal(SIGTERM);
  EXPECT_EQ(leaves.wait(20s), 0) << world.output();
  EXPECT_LT(world.effects().distinct, kMessages) << "the second left too late to be under load";
  const auto before = effects_of(world, dies);
  ASSERT_TRUE(eventually([&] { return effects_of(world, dies) > before; }, 60s)) << world.output();
  dies.signal(SIGKILL);
  dies.wait(5s);
  EXPECT_LT(world.effects().distinct, kMessages) << "the third died too late to be under load";
  expect_settled(world, kMessages);
  EXPECT_GT(effects_of(world, stays), 0);
  stays.signal(SIGTERM);
  EXPECT_EQ(stays.wait(20s), 0) << world.output();
}

/// The process is frozen within its transaction for longer than the group waits for it, then woken.
TEST(Rebalance, fences_a_member_that_wakes_after_it_was_given_up) {
  TURNSTILE_NEEDS_SERVERS();
  World world(WorldOptions{.partitions = 2, .session_timeout_ms = 3'000, .handler_timeout = "2s"});
  const std::string toml = world.toml("order = \"key\"", "lock_timeout = \"1s\"\n");
  world.publish(200, "a");
  world.publish("freeze", "stop-once:" + world.folder() + "/frozen", "1");
  world.publish(200, "b");
  Process frozen = world.consumer(toml);
  // The process has stopped itself in a handler, with its transaction open.
  ASSERT_TRUE(eventually([&] { return frozen.is_stopped(); }, 60s)) << world.output();
  Process successor = world.consumer(toml);
  EXPECT_TRUE(eventually([&] { return world.effects().distinct == 401; }, 60s)) << world.effects().distinct << "\n"
                                                                                << world.output();
  const auto before = effects_of(world, frozen);
  frozen.thaw();
  // The process lives on: it joins the group again, and takes its share of the new messages.
  int rounds = 0;
  ASSERT_TRUE(eventually(
      [&] {
        world.publish(20, "c" + std::to_string(rounds++) + "-");
        return effects_of(world, frozen) > before;
      },
      60s))
      << world.output();
  expect_settled(world, 401 + 20 * rounds);
  EXPECT_EQ(world.query("SELECT count(*) FROM effect WHERE id = 'freeze'"), "1");
  EXPECT_NE(world.query("SELECT pid FROM effect WHERE id = 'freeze'"), std::to_string(frozen.pid()));
  for (Process* process : {&frozen, &successor}) {
    process->signal(SIGTERM);
    EXPECT_EQ(process->wait(20s), 0) << world.output();
  }
}

}  // namespace
}  // namespace turnstile::test
