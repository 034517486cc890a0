// The main job on the real PostgreSQL and the real Apache Kafka: each message takes effect once.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>

#include "tests/support/running.hpp"
#include "tests/support/world.hpp"
#include "turnstile/turnstile.hpp"

namespace turnstile::test {
namespace {

using namespace std::chrono_literals;

/// Waits until every distinct id has an effect and all offsets are committed.
void expect_settled(World& world, std::int64_t distinct) {
  EXPECT_TRUE(eventually([&] { return world.effects().distinct == distinct; }, 90s))
      << world.effects().distinct << " of " << distinct << "\n"
      << world.output();
  EXPECT_TRUE(eventually([&] { return world.caught_up(); }, 30s)) << world.output();
  const Effects effects = world.effects();
  EXPECT_EQ(effects.rows, distinct) << "an effect was made twice";
  EXPECT_EQ(effects.distinct, distinct);
}

/// Whether a transaction of this test is open that has locked its fence.
/// The ids are in the inbox and the transaction waits for its owner. A lock alone can be that of another statement, such
/// as the purger's.
bool a_handler_runs(const World& world) {
  return world.query(
             "SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE state LIKE 'idle in transaction%' AND "
             "datname = current_database() AND "
             "relation = '" +
             world.schema() + ".inbox'::regclass") != "0";
}

/// The configuration of the world, with `more` appended to the name of its group.
Config of_group(const World& world, const std::string& more, const std::string& settings = {}) {
  std::string toml = world.toml(settings);
  const std::string own = "\"group.id\" = \"" + world.topic();
  return Config::parse(toml.replace(toml.find(own), own.size(), own + more), "test.toml");
}

/// Two services with one database. Each of them wants every message.
TEST(Groups, that_handle_one_topic_in_one_schema_are_told_to_name_their_handlers) {
  TURNSTILE_NEEDS_SERVERS();
  World world(2);
  const auto records = world.publish(100);
  const auto config = [&](const std::string& group, const std::string& settings = {}) {
    return of_group(world, group, settings);
  };
  std::atomic<int> mails = 0;
  const auto mail = [&](Consumer& app) {
    app.topic(world.topic(), [&](const Message&, Context&) { ++mails; } | transactional());
  };
  Running billing(config(""), [&](Consumer& app) {
    app.topic(world.topic(), [&](const Message& message, Context& context) {
      make_effect(world.schema(), message, context);
    } | transactional());
  });
  expect_settled(world, 100);
  Running unnamed(config("-mailer"), mail);
  const std::string refused = unnamed.failure();
  EXPECT_NE(
      refused.find("consumer group '" + world.topic() + "' already stores ids under the topic's name in this schema"),
      std::string::npos)
      << refused;
  EXPECT_NE(refused.find("handler = \"" + world.topic() + "-mailer\""), std::string::npos) << refused;
  Running named(config("-mailer", "handler = \"mailer\""), mail);
  EXPECT_TRUE(eventually([&] { return mails == 100; })) << mails << " of " << records << named.log_text();
  EXPECT_EQ(named.stop(), "");
  EXPECT_EQ(billing.stop(), "");
  Running renamed(config("-renamed", "handler = \"" + world.topic() + "\""), mail);
  EXPECT_TRUE(eventually([&] { return world.query("SELECT count(*) FROM watermark") == "6"; })) << renamed.log_text();
  EXPECT_EQ(renamed.stop(), "");
  EXPECT_EQ(mails, 100) << "what the same service did under its old group's name is done";
}

/// In mode by_offset, a group cannot see what another group has counted, so all messages would run again.
TEST(Groups, that_count_under_one_handler_are_refused) {
  TURNSTILE_NEEDS_SERVERS();
  for (const std::string handler : {"", "\nhandler = \"ledger\""}) {
    World world(1);
    world.publish("m", "plain");
    const std::string settings = "mode = \"by_offset\"" + handler;
    std::atomic<int> runs = 0;
    const auto set_up = [&](Consumer& app) {
      app.topic(world.topic(), [&](const Message&, Context&) { ++runs; } | by_offset());
    };
    Running first(of_group(world, "", settings), set_up);
    ASSERT_TRUE(eventually([&] { return world.caught_up(); })) << first.log_text();
    EXPECT_EQ(first.stop(), "");
    Running renamed(of_group(world, "-renamed", settings), set_up);
    const std::string refused = renamed.failure();
    EXPECT_NE(refused.find("keep group.id = \"" + world.topic() + "\""), std::string::npos) << refused;
    Running again(of_group(world, "", settings), set_up);
    EXPECT_TRUE(again.says("assigned")) << again.log_text();
    EXPECT_EQ(again.stop(), "");
    EXPECT_EQ(runs, 1);
  }
}

class MainJobIn : public ::testing::TestWithParam<const char*> {};

TEST_P(MainJobIn, makes_one_effect_of_each_message) {
  TURNSTILE_NEEDS_SERVERS();
  World world;
  EXPECT_EQ(world.publish(1000), 1100);
  Process consumer = world.consumer(world.toml("order = \"" + std::string(GetParam()) + "\""));
  expect_settled(world, 1000);
  if (GetParam() != std::string_view("none")) {
    EXPECT_EQ(world.out_of_order(), 0);
  }
  consumer.signal(SIGTERM);
  EXPECT_EQ(consumer.wait(20s), 0) << world.output();
}

INSTANTIATE_TEST_SUITE_P(EachOrder, MainJobIn, ::testing::Values("partition", "key", "none"),
                         [](const auto& order) { return std::string(order.param); });

TEST(MainJob, drains_on_sigterm) {
  TURNSTILE_NEEDS_SERVERS();
  World world(1);
  world.publish("slow", "sleep:1000");
  Process consumer = world.consumer(world.toml());
  ASSERT_TRUE(eventually([&] { return a_handler_runs(world); })) << world.output();
  consumer.signal(SIGTERM);
  EXPECT_EQ(consumer.wait(20s), 0) << world.output();
  EXPECT_EQ(world.effects().rows, 1);
  EXPECT_TRUE(world.caught_up());
}

TEST(MainJob, ends_the_drain_at_a_second_sigterm_and_loses_nothing) {
  TURNSTILE_NEEDS_SERVERS();
  World world(WorldOptions{.partitions = 1, .session_timeout_ms = 20'000, .handler_timeout = "15s"});
  world.publish("slow", "sleep:8000");
  world.publish("behind", "fine");
  Process consumer = world.consumer(world.toml());
  ASSERT_TRUE(eventually([&] { return a_handler_runs(world); }));
  consumer.signal(SIGTERM);
  ASSERT_TRUE(eventually([&] { return world.output().find("stopping: no new handlers") != std::string::npos; }))
      << world.output();
  const auto asked = std::chrono::steady_clock::now();
  consumer.signal(SIGTERM);
  EXPECT_TRUE(consumer.wait(20s).has_value()) << world.output();
  EXPECT_LT(std::chrono::steady_clock::now() - asked, 7s) << "it waited for the handler\n" << world.output();
  EXPECT_EQ(world.effects().rows, 0);
  Process successor = world.consumer(world.toml());
  EXPECT_TRUE(eventually([&] { return world.effects().rows == 2; }, 40s)) << world.output();
  EXPECT_EQ(world.effects().distinct, 2);
}

/// The process is killed at each step, and another consumer takes over.
class KilledAt : public ::testing::TestWithParam<const char*> {};

TEST_P(KilledAt, loses_nothing_and_repeats_nothing) {
  TURNSTILE_NEEDS_SERVERS();
#if !defined(TURNSTILE_FAILPOINTS)
  GTEST_SKIP() << "this build has no failpoints";
#endif
  World world(WorldOptions{.session_timeout_ms = 3'000, .handler_timeout = "2s"});
  world.publish(500);
  const std::string toml = world.toml("order = \"key\"\nbatch = 20", "lock_timeout = \"1s\"\n");
  // Offsets are committed once a second. With so few messages, the victim may reach that point only once.
  const char* const times = std::string_view(GetParam()) == "before-offset-commit" ? ":1" : ":3";
  Process victim = world.consumer(toml, {{"TURNSTILE_FAILPOINT", GetParam() + std::string(times)}});
  EXPECT_EQ(victim.wait(60s), -SIGKILL) << "the victim did not come by " << GetParam() << "\n" << world.output();
  Process successor = world.consumer(toml);
  expect_settled(world, 500);
  successor.signal(SIGTERM);
  EXPECT_EQ(successor.wait(20s), 0);
}

INSTANTIATE_TEST_SUITE_P(EachStep, KilledAt,
                         ::testing::Values("after-poll", "after-permit", "after-claim", "after-handler",
                                           "before-commit", "after-commit", "before-offset-commit", "before-release"),
                         step_name);

TEST(MainJob, finds_a_poison_message_in_a_batch_of_500) {
  TURNSTILE_NEEDS_SERVERS();
  World world(1);
  world.publish(250, "before");
  world.publish("poison", "throw");
  world.publish(250, "after");
  Process consumer = world.consumer(world.toml("batch = 500"));
  expect_settled(world, 500);
  EXPECT_EQ(world.query("SELECT reason || ' ' || attempts || ' ' || error FROM dead"), "failed 3 told to throw");
  consumer.signal(SIGTERM);
  EXPECT_EQ(consumer.wait(20s), 0);
}

}  // namespace
}  // namespace turnstile::test
