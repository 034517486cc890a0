// Mode leased on the real PostgreSQL and the real Apache Kafka. The effects are outside of the message's transaction,
// and the test counts them from outside.

#include <gmock/gmock.h>

#include <atomic>
#include <map>
#include <mutex>

#include "tests/support/cli.hpp"
#include "tests/support/running.hpp"
#include "tests/support/tcp_proxy.hpp"
#include "tests/support/topic_reader.hpp"
#include "tests/support/world.hpp"
#include "turnstile/turnstile.hpp"

namespace turnstile::test {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

const std::map<std::string, std::string> kElsewhere{{"ELSEWHERE", "1"}};
constexpr std::int64_t kBatch = 20;
/// One unit for each of the eight workers that a topic without a limit has.
constexpr std::int64_t kMostInDoubt = 8 * kBatch;

class LeasedFixture {
 public:
  explicit LeasedFixture(const std::string& more = {}, const std::string& lease = "2s", int partitions = 2)
      : world_(WorldOptions{.partitions = partitions, .session_timeout_ms = 3'000, .handler_timeout = "2s"}),
        toml_(world_.toml("mode = \"leased\"\nlease = \"" + lease +
                              "\"\norder = \"key\"\nbatch = " + std::to_string(kBatch) + "\n" + more,
                          "lock_timeout = \"1s\"\n")) {}
  World* operator->() noexcept { return &world_; }
  Process consumer(std::map<std::string, std::string> environment = {}) {
    environment.insert(kElsewhere.begin(), kElsewhere.end());
    return world_.consumer(toml_, environment);
  }
  /// The number of messages that are done, or parked with a dead letter that contains the reason.
  [[nodiscard]] std::int64_t decided() const {
    return std::stoll(world_.query(
        "SELECT (SELECT count(*) FROM inbox) + (SELECT count(DISTINCT message_id) FROM dead WHERE reason = 'unknown')"));
  }
  [[nodiscard]] std::int64_t parked() const {
    return std::stoll(world_.query("SELECT count(*) FROM claim WHERE state = 'parked'"));
  }
  void expect_all_decided(std::int64_t distinct) {
    EXPECT_TRUE(eventually([&] { return decided() == distinct && world_.caught_up(); }, 90s))
        << decided() << " of " << distinct << "\n"
        << world_.output();
    EXPECT_EQ(world_.query("SELECT count(*) FROM claim WHERE state <> 'parked'"), "0");
  }
  /// Fails the test if an effect was made twice.
  void expect_none_twice() {
    const Effects effects = world_.effects();
    EXPECT_EQ(effects.rows, effects.distinct) << "an effect was made twice\n" << world_.output();
  }
  /// Expects one id for each published message, however often it was sent.
  void expect_published_by_each_that_is_done(const std::string& topic) {
    EXPECT_TRUE(eventually([&] { return world_.query("SELECT count(*) FROM outbox") == "0"; })) << world_.output();
    TopicReader sent(topic);
    const auto done = std::stoul(world_.query("SELECT count(*) FROM inbox"));
    EXPECT_TRUE(sent.until([&] { return sent.ids().size() >= done; })) << sent.ids().size() << " of " << done;
    EXPECT_EQ(sent.ids().size(), done);
    for (const auto& [message, ids] : sent.ids()) EXPECT_EQ(ids.size(), 1U) << message;
    EXPECT_EQ(world_.query("SELECT count(*) FROM response"), std::to_string(done));
  }
  static void end(Process& process) {
    process.signal(SIGTERM);
    EXPECT_EQ(process.wait(20s), 0);
  }

 private:
  World world_;
  std::string toml_;
};

TEST(Leased, makes_one_effect_of_each_message) {
  TURNSTILE_NEEDS_SERVERS();
  LeasedFixture world;
  EXPECT_EQ(world->publish(1'000), 1'100);
  Process one = world.consumer(), other = world.consumer();
  world.expect_all_decided(1'000);
  EXPECT_EQ(world.parked(), 0);
  EXPECT_EQ(world->effects().rows, 1'000);
  EXPECT_EQ(world->effects().distinct, 1'000);
  EXPECT_EQ(world->out_of_order(), 0);
  for (Process* process : {&one, &other}) LeasedFixture::end(*process);
}

class LeasedKilledAt : public ::testing::TestWithParam<const char*> {
 protected:
  static const char* times() { return std::string_view(GetParam()) == "before-offset-commit" ? ":1" : ":3"; }
};

/// The process is killed at each step. Nothing is lost, nothing is made twice, and a message with an unknown outcome
/// waits for a person.
TEST_P(LeasedKilledAt, loses_nothing_and_repeats_nothing) {
  TURNSTILE_NEEDS_SERVERS();
#if !defined(TURNSTILE_FAILPOINTS)
  GTEST_SKIP() << "this build has no failpoints";
#endif
  LeasedFixture world;
  const std::string out = world->add_topic("out");
  world->publish(300);
  Process victim = world.consumer({{"TURNSTILE_FAILPOINT", std::string(GetParam()) + times()}, {"PUBLISH", out}});
  EXPECT_EQ(victim.wait(60s), -SIGKILL) << "the victim did not come by " << GetParam() << "\n" << world->output();
  Process successor = world.consumer({{"PUBLISH", out}});
  world.expect_all_decided(300);
  world.expect_none_twice();
  world.expect_published_by_each_that_is_done(out);
  // Each message that is done has its effect. Each message that is parked may have it. The others have none.
  const auto done = std::stoll(world->query("SELECT count(*) FROM inbox"));
  EXPECT_EQ(
      world->query("SELECT count(*) FROM inbox i WHERE NOT EXISTS (SELECT 1 FROM effect e WHERE e.record_offset = "
                   "i.record_offset AND e.record_partition = (SELECT partition FROM fence f WHERE f.slot = i.slot))"),
      "0")
      << "done without an effect";
  EXPECT_GE(world->effects().distinct, done);
  EXPECT_LE(world.parked(), kMostInDoubt);
  LeasedFixture::end(successor);
}

/// The same test, with a receiver that drops repeats. All messages run in the end, and at most those in doubt run
/// twice.
TEST_P(LeasedKilledAt, runs_again_where_that_is_the_policy) {
  TURNSTILE_NEEDS_SERVERS();
#if !defined(TURNSTILE_FAILPOINTS)
  GTEST_SKIP() << "this build has no failpoints";
#endif
  LeasedFixture world("unknown = \"rerun\"\n");
  world->publish(300);
  Process victim = world.consumer({{"TURNSTILE_FAILPOINT", std::string(GetParam()) + times()}});
  EXPECT_EQ(victim.wait(60s), -SIGKILL) << world->output();
  Process successor = world.consumer();
  EXPECT_TRUE(eventually([&] { return world->effects().distinct == 300 && world->caught_up(); }, 90s))
      << world->output();
  EXPECT_EQ(world->query("SELECT count(*) FROM inbox"), "300");
  EXPECT_LE(world->effects().rows, 300 + kMostInDoubt);
  EXPECT_EQ(world.parked(), 0);
  LeasedFixture::end(successor);
}

INSTANTIATE_TEST_SUITE_P(EachStep, LeasedKilledAt,
                         ::testing::Values("after-claim", "after-handler", "before-complete", "after-complete",
                                           "before-offset-commit", "before-release"),
                         step_name);

/// The process is frozen in its handler for longer than its lease, then woken. The message is parked, and the woken
/// process writes no outcome for it.
TEST(Leased, who_wakes_past_its_lease_changes_nothing) {
  TURNSTILE_NEEDS_SERVERS();
  LeasedFixture world;
  world->publish("freeze", "stop-once:" + world->folder() + "/frozen", "1");
  Process frozen = world.consumer();
  ASSERT_TRUE(eventually([&] { return frozen.is_stopped(); }, 60s)) << world->output();
  Process successor = world.consumer();
  EXPECT_TRUE(eventually([&] { return world.parked() == 1; }, 60s)) << world->output();
  frozen.thaw();
  EXPECT_TRUE(
      eventually([&] { return world->output().find("its claim was lost meanwhile") != std::string::npos; }, 30s))
      << world->output();
  EXPECT_EQ(world.parked(), 1);
  EXPECT_EQ(world->query("SELECT count(*) FROM inbox"), "0");
  EXPECT_EQ(world->effects().rows, 1) << "it was made by the one that slept";
  // A person looks, sees the effect, and marks the message as done.
  Cli cli;
  cli.environment()["TURNSTILE_POSTGRES_URL"] = *postgres_url();
  cli.environment()["TURNSTILE_POSTGRES_SCHEMA"] = world->schema();
  EXPECT_EQ(cli.run("inbox", "unpark", "freeze", "--handler", world->topic(), "--done").code, 0);
  world->publish("freeze", "again", "1");
  EXPECT_TRUE(eventually([&] { return world->caught_up(); }, 30s));
  EXPECT_EQ(world->effects().rows, 1);
  for (Process* process : {&frozen, &successor}) LeasedFixture::end(*process);
}

TEST(Leased, a_handler_longer_than_its_lease_keeps_it) {
  TURNSTILE_NEEDS_SERVERS();
  LeasedFixture world("", "1s", 1);
  world->publish("slow", "sleep:1900");
  world->publish("slow", "its duplicate");
  Process consumer = world.consumer();
  world.expect_all_decided(1);
  EXPECT_EQ(world->effects().rows, 1);
  EXPECT_EQ(world.parked(), 0);
  LeasedFixture::end(consumer);
}

TEST(Leased, goes_on_without_postgresql_where_that_is_the_policy) {
  TURNSTILE_NEEDS_SERVERS();
  Sql sql(*postgres_url());
  TcpProxy proxy = proxy_to(sql);
  World world(1);
  Config config = world.config("mode = \"leased\"\nlease = \"2s\"\nstore_down = \"run\"\n");
  config.postgres->url = Secret(url_through(*postgres_url(), proxy.port()));
  std::atomic<int> effects = 0;
  Running consumer(config,
                   [&](Consumer& app) { app.topic(world.topic(), [&](const Message&, Context&) { ++effects; }); });
  const auto records = world.publish(50, "before");
  EXPECT_TRUE(eventually([&] { return effects == 50 && world.caught_up(); }));
  EXPECT_GT(records, 50) << "some came twice, and were told apart";
  proxy.cut(true);
  const auto meanwhile = world.publish(50, "meanwhile");
  EXPECT_TRUE(eventually([&] { return effects == 50 + meanwhile && world.caught_up(); }, 60s)) << consumer.log_text();
  proxy.cut(false);
  EXPECT_TRUE(consumer.says("messages ran without a claim during the outage")) << consumer.log_text();
  world.publish(50, "after");
  EXPECT_TRUE(eventually([&] { return effects == 100 + meanwhile && world.caught_up(); }));
  EXPECT_EQ(world.query("SELECT count(*) FROM inbox"), "100") << "what ran meanwhile is not known";
  EXPECT_EQ(consumer.stop(), "");
}

/// PostgreSQL becomes unavailable while each worker is in a handler. Messages whose handler has returned are done, and
/// a successor does not run them again.
TEST(Leased, makes_no_effect_twice_when_postgresql_goes_away_under_its_handlers) {
  TURNSTILE_NEEDS_SERVERS();
  Sql sql(*postgres_url());
  TcpProxy proxy = proxy_to(sql);
  World world(2);
  Config config = world.config("mode = \"leased\"\nlease = \"2s\"\norder = \"key\"\nbatch = 1\nstore_down = \"run\"\n");
  config.postgres->url = Secret(url_through(*postgres_url(), proxy.port()));
  std::mutex mutex;
  std::map<std::string, int> effects;
  std::atomic<int> inside = 0;
  std::atomic<bool> open = false;
  const auto handler = [&](const Message& message, Context&) {
    ++inside;
    open.wait(false);
    const std::lock_guard lock(mutex);
    ++effects[std::string(message.text())];
  };
  const auto add = [&](Consumer& app) { app.topic(world.topic(), handler); };
  const auto made = [&] {
    const std::lock_guard lock(mutex);
    return effects.size();
  };
  const auto publish = [&](int from, int to) {
    for (int i = from; i < to; ++i) {
      OwnedMessage message;
      message.topic = world.topic();
      message.key = "k" + std::to_string(i % 50);
      message.payload = "m" + std::to_string(i);
      message.headers = {{"message-id", *message.payload}};
      message.partition = -1;
      world.publish(message);
    }
  };
  std::string log;
  {
    Running consumer(config, add);
    publish(0, 100);
    EXPECT_TRUE(eventually([&] { return inside == 8; })) << "each worker is in one";
    proxy.cut(true);
    open = true;
    open.notify_all();
    EXPECT_TRUE(eventually([&] { return made() == 100 && world.caught_up(); }, 60s)) << made() << consumer.log_text();
    EXPECT_EQ(consumer.stop(), "");
    log = consumer.log_text();
  }
  EXPECT_THAT(log, HasSubstr("its result is recorded once PostgreSQL answers (store_down is run)"));
  proxy.cut(false);
  Running successor(config, add);
  publish(100, 110);
  EXPECT_TRUE(eventually([&] { return made() == 110 && world.caught_up(); }, 60s)) << successor.log_text();
  EXPECT_EQ(successor.stop(), "");
  for (const auto& [message, count] : effects) EXPECT_EQ(count, 1) << message;
}

/// A message whose claim has not ended may have taken effect, and another mode would run it again.
TEST(Leased, another_mode_starts_only_when_no_claim_is_left) {
  TURNSTILE_NEEDS_SERVERS();
  World world(1);
  std::atomic<int> runs = 0;
  std::atomic<bool> open = false;
  const auto add = [&](Consumer& app) {
    app.topic(world.topic(), [&](const Message&, Context&) {
      ++runs;
      open.wait(false);
    });
  };
  const auto refusal = [&] {
    Running other(world.config("mode = \"transactional\"\n"), add);
    return other.failure();
  };
  Running consumer(world.config("mode = \"leased\"\n"), add);
  world.publish("a", "p");
  EXPECT_TRUE(eventually([&] { return runs == 1; })) << consumer.log_text();
  EXPECT_THAT(refusal(), HasSubstr("handler '" + world.topic() + "' has claims of mode leased: 1 running"));
  open = true;
  open.notify_all();
  EXPECT_TRUE(eventually([&] { return world.caught_up(); })) << consumer.log_text();
  EXPECT_EQ(consumer.stop(), "");
  static_cast<void>(world.query(
      "INSERT INTO claim (handler, id, state, owner, fence, expires_at, slot, record_offset) SELECT handler, "
      "gen_random_uuid(), state, gen_random_uuid(), 1, now(), 0, 0 FROM inbox, unnest(ARRAY['parked', 'failed']) state"));
  EXPECT_THAT(refusal(), HasSubstr("0 running, 0 in doubt, 1 parked"));
  static_cast<void>(world.query("DELETE FROM claim WHERE state = 'parked'"));
  Running other(world.config("mode = \"transactional\"\n"), add);
  world.publish("b", "p");
  EXPECT_TRUE(eventually([&] { return runs == 2; })) << other.log_text();
  EXPECT_EQ(other.stop(), "");
}

class LeasedWhileRunning : public ::testing::TestWithParam<const char*> {};

/// A repeat arrives in another partition while the first message is being handled.
TEST_P(LeasedWhileRunning, a_repeat_has_no_effect_of_its_own) {
  TURNSTILE_NEEDS_SERVERS();
  World world(2);
  const std::string policy = GetParam();
  std::atomic<int> runs = 0;
  std::atomic<bool> open = false;
  const auto handler = [&](const Message&, Context&) {
    ++runs;
    open.wait(false);
  };
  Running consumer(world.config("mode = \"leased\"\nwhile_running = \"" + policy + "\"\n"), [&](Consumer& app) {
    app.topic(world.topic(), handler | retry(exponential{20ms, 1'000, 100ms}));
  });
  const auto publish = [&](std::int32_t partition) {
    OwnedMessage message;
    message.topic = world.topic();
    message.partition = partition;
    message.payload = "a";
    message.headers = {{"message-id", "a"}};
    world.publish(message);
  };
  publish(0);
  EXPECT_TRUE(eventually([&] { return runs == 1; }));
  publish(1);
  const auto committed = [&] { return world.committed(1); };
  if (policy == "skip") {
    EXPECT_TRUE(eventually([&] { return committed() == 1; })) << consumer.log_text();
  } else if (policy == "retry") {
    EXPECT_TRUE(consumer.says("another one with its id is being handled")) << consumer.log_text();
    EXPECT_NE(committed(), 1) << "settled before the first one is";
  }
  open = true;
  open.notify_all();
  EXPECT_TRUE(eventually([&] { return world.caught_up(); })) << consumer.log_text();
  EXPECT_EQ(runs, 1);
  EXPECT_EQ(world.query("SELECT count(*) FROM inbox"), "1");
  EXPECT_EQ(consumer.stop(), "");
}

INSTANTIATE_TEST_SUITE_P(EachPolicy, LeasedWhileRunning, ::testing::Values("wait", "skip", "retry"),
                         [](const auto& policy) { return std::string(policy.param); });

}  // namespace
}  // namespace turnstile::test
