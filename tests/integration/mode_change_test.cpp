// A handler gets another mode while its group has members, or after one was killed. On the real PostgreSQL and the real
// Apache Kafka.

#include <gmock/gmock.h>

#include <atomic>
#include <memory>

#include "tests/support/running.hpp"
#include "tests/support/world.hpp"
#include "turnstile/turnstile.hpp"

namespace turnstile::test {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

/// The member of mode transactional has found no claim at its start. Then a member of mode leased joins, and leaves
/// while its handler runs.
TEST(ModeChange, a_message_that_runs_in_mode_leased_does_not_run_in_another_mode) {
  TURNSTILE_NEEDS_SERVERS();
  World world(2);
  struct Leased {  // the handler outlives its consumer
    std::atomic<int> begun = 0, ended = 0;
    std::atomic<bool> open = false;
  };
  const auto leased = std::make_shared<Leased>();
  std::atomic<int> others = 0;
  Running old(world.config("mode = \"transactional\"\n"),
              [&](Consumer& app) { app.topic(world.topic(), [&](const Message&, Context&) { ++others; }); });
  EXPECT_TRUE(old.says("assigned 2 partitions")) << old.log_text();
  Config config = world.config("mode = \"leased\"\n");
  config.consumer.drain_timeout = 100ms;
  Running fresh(config, [&](Consumer& app) {
    app.topic(world.topic(), [leased](const Message&, Context&) {
      ++leased->begun;
      leased->open.wait(false);
      ++leased->ended;
    });
  });
  EXPECT_TRUE(fresh.says("assigned 1 partitions")) << fresh.log_text();
  EXPECT_TRUE(old.says("assigned 1 partitions")) << "it ends if it claims a partition later than the other one runs";
  for (std::int32_t partition : {0, 1}) {
    OwnedMessage message;
    message.topic = world.topic();
    message.partition = partition;
    message.payload = "p";
    message.headers = {{"message-id", "m" + std::to_string(partition)}};
    world.publish(message);
  }
  EXPECT_TRUE(eventually([&] { return leased->begun == 1 && others == 1; })) << fresh.log_text();
  EXPECT_EQ(fresh.stop(), "") << fresh.log_text();
  EXPECT_THAT(old.failure(), HasSubstr("handler '" + world.topic() + "' has claims of mode leased: 1 running"))
      << old.log_text();
  EXPECT_EQ(others, 1) << "a message ran that another member was running\n" << old.log_text();
  leased->open = true;
  leased->open.notify_all();
  EXPECT_TRUE(eventually([&] { return leased->ended == 1; }));
}

/// The process is killed before its offsets are committed, and before it has written a watermark.
TEST(ModeChange, records_of_mode_by_offset_take_effect_once_after_a_crash) {
  TURNSTILE_NEEDS_SERVERS();
#if !defined(TURNSTILE_FAILPOINTS)
  GTEST_SKIP() << "this build has no failpoints";
#endif
  World world(WorldOptions{.partitions = 3, .session_timeout_ms = 3'000, .handler_timeout = "2s"});
  world.publish(500);
  const auto toml = [&](const std::string& mode) {
    return world.toml("mode = \"" + mode + "\"\nbatch = 20\n", "lock_timeout = \"1s\"\n");
  };
  Process victim = world.consumer(toml("by_offset"), {{"TURNSTILE_FAILPOINT", "after-commit:3"}});
  EXPECT_EQ(victim.wait(60s), -SIGKILL) << world.output();
  EXPECT_GT(world.effects().rows, 0);
  Process successor = world.consumer(toml("transactional"));
  EXPECT_TRUE(eventually([&] { return world.effects().distinct == 500 && world.caught_up(); }, 90s)) << world.output();
  EXPECT_EQ(world.query("SELECT count(*) - count(DISTINCT (record_partition, record_offset)) FROM effect"), "0")
      << "a record took effect twice\n"
      << world.output();
  successor.signal(SIGTERM);
  EXPECT_EQ(successor.wait(20s), 0);
}

}  // namespace
}  // namespace turnstile::test
