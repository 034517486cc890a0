// The database becomes unavailable, comes back, and loses answers while messages are handled.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/support/own_postgres.hpp"
#include "tests/support/postgres_schema.hpp"
#include "tests/support/running.hpp"
#include "tests/support/world.hpp"
#include "turnstile/log.hpp"
#include "turnstile/ports/limiter.hpp"
#include "turnstile/postgres/limiters.hpp"
#include "turnstile/turnstile.hpp"

namespace turnstile::test {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kAway =
    "PostgreSQL cannot be used. Handlers that need it start again once it answers; polling continues";
constexpr const char* kBack = "PostgreSQL answers again, and handlers start again";

void expect_settled(World& world, std::int64_t distinct, const Running& consumer) {
  EXPECT_TRUE(eventually([&] { return world.effects().distinct == distinct; }, 60s))
      << world.effects().distinct << " of " << distinct << "\n"
      << consumer.log_text();
  EXPECT_TRUE(eventually([&] { return world.caught_up(); })) << consumer.log_text();
  EXPECT_EQ(world.effects().rows, distinct) << "an effect was made twice";
}

Pipeline slow_effect(const World& world, std::chrono::milliseconds work = 2ms) {
  return [schema = world.schema(), work](const Message& message, Context& context) {
    std::this_thread::sleep_for(work);
    make_effect(schema, message, context);
  } | transactional() |
         retry(exponential{20ms, 3}) | dead_letter();
}

// After SIGSTOP, the server accepts connections and answers nothing.
TEST(Database, may_hang_and_the_consumer_says_so_and_ends_when_asked) {
  TURNSTILE_NEEDS_SERVERS();
  OwnPostgres postgres;
  World world(WorldOptions{.postgres_url = postgres.url(), .handler_timeout = "2s"});
  const std::string toml = world.toml("order = \"key\"", "connect_timeout = \"1s\"\nlock_timeout = \"1s\"\n");
  world.publish(100);
  Process consumer = world.consumer(toml, {{"EFFECT_MS", "20"}});
  ASSERT_TRUE(eventually([&] { return world.effects().rows > 10; }, 60s)) << world.output();
  postgres.run("freeze");
  const bool told = eventually([&] { return world.output().find(kAway) != std::string::npos; }, 30s);
  consumer.signal(SIGINT);
  const auto code = consumer.wait(60s);
  postgres.run("thaw");
  EXPECT_TRUE(told) << world.output();
  EXPECT_EQ(code, 0) << world.output();
  // Either a statement on an existing connection or a new connection reaches its time limit first.
  EXPECT_TRUE(world.output().find("has not answered for") != std::string::npos ||
              world.output().find("timeout expired") != std::string::npos)
      << world.output();
  Process next = world.consumer(toml);
  EXPECT_TRUE(eventually([&] { return world.effects().distinct == 100 && world.caught_up(); }, 60s)) << world.output();
  EXPECT_EQ(world.effects().rows, 100);
}

/// The process ends 3 s after drain_timeout, or 3 s after the second signal. The test allows 3 s more for a busy
/// machine.
TEST(Database, may_hang_and_the_process_ends_in_time) {
  TURNSTILE_NEEDS_SERVERS();
  OwnPostgres postgres;
  // A member that does not leave its group keeps its partitions for longer than the next one is waited for.
  World world(WorldOptions{.postgres_url = postgres.url(), .session_timeout_ms = 300'000});
  for (const bool twice : {false, true}) {
    const std::string drain = twice ? "30s" : "2s";
    world.publish(300, "m" + drain);
    const auto before = world.effects().rows;
    Process consumer =
        world.consumer(world.toml("", "[consumer]\ndrain_timeout = \"" + drain + "\"\n"), {{"EFFECT_MS", "20"}});
    ASSERT_TRUE(eventually([&] { return world.effects().rows > before + 10; }, 60s)) << world.output();
    postgres.run("freeze");
    const auto began = std::chrono::steady_clock::now();
    consumer.signal(SIGTERM);
    if (twice) {
      std::this_thread::sleep_for(300ms);
      consumer.signal(SIGTERM);
    }
    const auto code = consumer.wait(60s);
    const auto took = std::chrono::steady_clock::now() - began;
    postgres.run("thaw");
    EXPECT_EQ(code, 0) << world.output();
    EXPECT_LT(took, twice ? 6'300ms : 8'000ms) << world.output();
  }
  Process next = world.consumer(world.toml());
  EXPECT_TRUE(eventually([&] { return world.effects().distinct == 600; }, 60s)) << world.output();
  EXPECT_EQ(world.effects().rows, 600);
}

/// PostgreSQL keeps the session of the frozen process: it waits for it to read, which is no idle time.
TEST(Database, gives_a_partition_on_whose_owner_is_frozen_in_a_large_result) {
  TURNSTILE_NEEDS_SERVERS();
  World world(WorldOptions{.partitions = 1, .session_timeout_ms = 6'000, .handler_timeout = "2s"});
  const std::string toml = world.toml("", "lock_timeout = \"1s\"\n");
  world.publish("large", "exec:SELECT repeat('x', 1000) FROM generate_series(1, 1000000)");
  Process frozen = world.consumer(toml);
  const auto sends = [&](const char* wait_event) {
    return world.query("SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT repeat(%' AND state = 'active'" +
                       std::string(wait_event)) == "1";
  };
  ASSERT_TRUE(eventually([&] { return sends(""); }, 60s)) << world.output();
  frozen.freeze();
  ASSERT_TRUE(eventually([&] { return sends(" AND wait_event = 'ClientWrite'"); })) << "it was frozen too late";
  Process next = world.consumer(toml, {{"HEALED", "1"}});
  EXPECT_TRUE(eventually([&] { return world.effects().rows == 1 && world.caught_up(); }, 60s)) << world.output();
  EXPECT_THAT(world.output(), AllOf(HasSubstr("kept this consumer from claiming " + world.topic() + "[0]"),
                                    HasSubstr("code=session_ended")));
  frozen.thaw();
  frozen.signal(SIGTERM);
  EXPECT_EQ(frozen.wait(60s), 0) << world.output();
  EXPECT_EQ(world.effects().rows, 1);
}

/// A poll loop takes at most 3 s, limiters at most 2 s. The test allows 3 s more for a busy machine.
TEST(Database, may_hang_and_a_poll_loop_and_limiters_end_in_time) {
  TURNSTILE_NEEDS_SERVERS();
  OwnPostgres postgres;
  World world(WorldOptions{.postgres_url = postgres.url()});
  auto loop = std::make_unique<PollLoop>(world.config());
  loop->topic(world.topic(), slow_effect(world));
  OwnedMessage message;
  message.topic = world.topic();
  message.headers = {{"message-id", "one"}};
  ASSERT_EQ(loop->handle(Message(message)), Settled::done);
  PostgresSettings settings;
  settings.url = Secret(postgres.url());
  settings.schema = world.schema();
  settings.connect_timeout = 20s;
  const auto limiters_of = [&] { return postgres::open_limiters(settings, {}, make_logger({.level = "off"})); };
  auto connected = limiters_of();
  auto limiter = connected->open("psp", 1);
  Permit permit;
  ASSERT_TRUE(eventually([&] { return static_cast<bool>(permit = limiter->try_acquire()); }));
  postgres.run("freeze");
  auto unconnected = limiters_of();
  auto waits = unconnected->open("psp", 1);
  const auto took = [](auto&& end) {
    const auto began = std::chrono::steady_clock::now();
    end();
    return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - began);
  };
  EXPECT_LT(took([&] { loop.reset(); }), 6s);
  EXPECT_LT(took([&] {
              permit = {};
              limiter.reset();
              connected.reset();
            }),
            5s);
  EXPECT_LT(took([&] {
              waits.reset();
              unconnected.reset();
            }),
            5s);
  postgres.run("thaw");
}

TEST(Database, may_crash_while_loaded_and_the_consumer_goes_on_by_itself) {
  TURNSTILE_NEEDS_SERVERS();
  OwnPostgres postgres;
  World world(WorldOptions{.postgres_url = postgres.url()});
  const std::string other = world.add_topic("other");
  std::atomic<int> others{0};
  world.publish(1000);
  Running consumer(world.config("order = \"key\"\nlimit = 2", "[topics.\"" + other + "\"]\nhandler_timeout = \"5s\"\n"),
                   [&](Consumer& app) {
                     app.topic(world.topic(), slow_effect(world, 10ms));
                     app.topic(other, [&](const Message&) { ++others; });
                   });
  ASSERT_TRUE(eventually([&] { return world.effects().rows > 100; })) << consumer.log_text();
  postgres.run("kill");
  ASSERT_TRUE(consumer.says(kAway)) << consumer.log_text();
  // Polling goes on: a topic that needs no database is handled as before.
  OwnedMessage message;
  message.topic = other;
  message.partition = -1;
  for (int round = 1; round <= 3; ++round) {
    world.publish(message);
    ASSERT_TRUE(eventually([&] { return others == round; })) << consumer.log_text();
  }
  EXPECT_EQ(consumer.lines_with(kBack), 0) << consumer.log_text();
  const auto lines_while_away = consumer.log().size();
  EXPECT_FALSE(eventually([&] { return consumer.log().size() > lines_while_away; }, 1500ms))
      << "one line for each change of state, not for each try:\n"
      << consumer.log_text();
  postgres.run("restart");
  expect_settled(world, 1000, consumer);
  EXPECT_TRUE(consumer.says(kBack)) << consumer.log_text();  // logged by another thread than those that settle
  EXPECT_EQ(consumer.lines_with(kAway), 1) << consumer.log_text();
  EXPECT_EQ(consumer.lines_with(kBack), 1) << consumer.log_text();
  EXPECT_EQ(world.query("SELECT count(*) FROM dead"), "0") << "the database's absence is no failure of a message";
  EXPECT_EQ(world.query("SELECT max(attempt) FROM effect"), "1") << "and no attempt";
  EXPECT_EQ(consumer.stop(), "");
}

TEST(Database, may_be_away_when_the_consumer_is_given_its_partitions) {
  TURNSTILE_NEEDS_SERVERS();
  OwnPostgres postgres;
  World world(WorldOptions{.postgres_url = postgres.url()});
  world.publish(100);
  // The first member holds all partitions. The second member gets some of them while the database is unavailable.
  Running consumer(world.config(), [&](Consumer& app) { app.topic(world.topic(), slow_effect(world)); });
  ASSERT_TRUE(eventually([&] { return world.effects().rows > 0; })) << consumer.log_text();
  Process second = world.consumer(world.toml());
  ASSERT_TRUE(eventually([&] { return world.output().find("assigned") != std::string::npos; })) << world.output();
  postgres.run("kill");
  EXPECT_EQ(consumer.stop(), "");
  ASSERT_TRUE(eventually([&] { return world.output().find(kAway) != std::string::npos; })) << world.output();
  postgres.run("restart");
  world.publish(100, "later");
  EXPECT_TRUE(eventually([&] { return world.effects().distinct == 200; }, 60s))
      << world.effects().distinct << world.output();
  EXPECT_TRUE(eventually([&] { return world.caught_up(); })) << world.output();
  // The two members write their ids in two forms, so repeats are counted by record.
  EXPECT_EQ(world.query("SELECT count(*) - count(DISTINCT (record_partition, record_offset)) FROM effect"), "0");
  second.signal(SIGTERM);
  EXPECT_EQ(second.wait(20s), 0) << world.output();
}

class DatabaseGoesBack : public ::testing::TestWithParam<const char*> {};

/// The database goes back to an older state under a consumer that runs. What it has lost is read again, although no new
/// message arrives.
TEST_P(DatabaseGoesBack, and_what_it_has_lost_is_handled_again) {
  TURNSTILE_NEEDS_SERVERS();
  OwnPostgres postgres;
  World world(WorldOptions{.postgres_url = postgres.url()});
  const std::string settings = "mode = \"" + std::string(GetParam()) + "\"";
  const auto run = [&] {
    return std::make_unique<Running>(world.config(settings),
                                     [&](Consumer& app) { app.topic(world.topic(), slow_effect(world, 0ms)); });
  };
  const auto watermarks_are = [&](std::int64_t sum) {
    return eventually([&] { return world.query("SELECT sum(watermark) FROM watermark") == std::to_string(sum); });
  };
  auto consumer = run();
  std::int64_t records = world.publish(300);
  ASSERT_TRUE(watermarks_are(records)) << consumer->log_text();
  for (const bool under_our_epoch : {true, false}) {
    postgres.keep_copy();
    if (!under_our_epoch) {  // the copy does not have this epoch
      EXPECT_EQ(consumer->stop(), "");
      consumer = run();
    }
    records += world.publish(300, under_our_epoch ? "second" : "third");
    ASSERT_TRUE(watermarks_are(records)) << consumer->log_text();
    const std::string effects = world.query("SELECT count(*) FROM effect");
    postgres.go_back_to_copy();
    EXPECT_NE(world.query("SELECT count(*) FROM effect"), effects);
    EXPECT_TRUE(eventually([&] { return world.query("SELECT count(*) FROM effect") == effects; }, 60s))
        << world.query("SELECT count(*) FROM effect") << " of " << effects << '\n'
        << consumer->log_text();
    EXPECT_TRUE(consumer->says("after the database had changed; reading again from offset")) << consumer->log_text();
    ASSERT_TRUE(watermarks_are(records)) << consumer->log_text();
  }
  EXPECT_EQ(world.query("SELECT count(*) - count(DISTINCT (record_partition, record_offset)) FROM effect"), "0");
  EXPECT_EQ(consumer->stop(), "");
}

INSTANTIATE_TEST_SUITE_P(InMode, DatabaseGoesBack, ::testing::Values("transactional", "by_offset"),
                         [](const auto& mode) { return std::string(mode.param); });

/// The answer to COMMIT is lost, so the consumer cannot know whether the transaction was committed.
TEST(Database, may_lose_the_answer_to_commit_and_the_outcome_is_looked_up) {
  TURNSTILE_NEEDS_SERVERS();
  Sql sql(*postgres_url());
  TcpProxy proxy = proxy_to(sql);
  World world;
  world.publish(1000);
  Config config = world.config("order = \"key\"\nlimit = 4\nbatch = 1");  // every third answer is for a COMMIT
  config.postgres->url = Secret(url_through(*postgres_url(), proxy.port()));
  Running consumer(config, [&](Consumer& app) { app.topic(world.topic(), slow_effect(world)); });
  ASSERT_TRUE(eventually([&] { return world.effects().rows > 0; })) << consumer.log_text();
  int batches = 0;
  // Some of the answers that the proxy drops are answers to COMMIT. The test goes on until it has seen both outcomes.
  const bool seen = eventually(
      [&] {
        const bool request = consumer.lines_with("commit in doubt: it was committed") > 0;
        if (request && consumer.lines_with("commit in doubt: it was not committed; running it again") > 0) return true;
        if (request) proxy.drop_next_request();
        else proxy.drop_next_answer();
        // Lets the connection come back before the next answer is dropped.
        const auto rows = world.effects().rows;
        eventually([&] { return world.effects().rows > rows; }, 5s);
        if (world.effects().distinct > 900 * (batches + 1))
          world.publish(1000, "more" + std::to_string(batches++) + "-");
        return false;
      },
      60s);
  EXPECT_TRUE(seen) << consumer.log_text();
  expect_settled(world, 1000 * (batches + 1), consumer);
  EXPECT_EQ(world.query("SELECT count(*) FROM dead"), "0");
}

TEST(Database, may_end_our_connections_while_loaded) {
  TURNSTILE_NEEDS_SERVERS();
  World world;
  world.publish(1000);
  Config config = world.config("order = \"key\"\nlimit = 4\nbatch = 10");
  config.postgres->url = Secret(with_parameter(*postgres_url(), "application_name", world.topic()));
  Running consumer(config, [&](Consumer& app) { app.topic(world.topic(), slow_effect(world)); });
  // A consumer does not start without its database.
  ASSERT_TRUE(eventually([&] { return world.effects().rows > 0; })) << consumer.log_text();
  std::int64_t ended = 0;
  EXPECT_TRUE(eventually(
      [&] {
        if (world.effects().distinct == 1000) return true;
        const auto rows = world.effects().rows;
        ended += std::stoll(
            world.query("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = '" +
                        world.topic() + "'"));
        // Lets the connection come back before the next answer is dropped.
        eventually([&] { return world.effects().rows > rows; }, 5s);
        return false;
      },
      60s))
      << consumer.log_text();
  EXPECT_GE(ended, 5) << "connections that were ended in mid-load";
  expect_settled(world, 1000, consumer);
  EXPECT_EQ(world.query("SELECT count(*) FROM dead"), "0");
}

}  // namespace
}  // namespace turnstile::test
