// Producers that number their requests, on the real PostgreSQL and the real Apache Kafka. The database keeps rows for
// producers, and none for messages.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ringbuffer_sink.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <atomic>
#include <map>

#include "tests/support/cli.hpp"
#include "tests/support/running.hpp"
#include "tests/support/tcp_proxy.hpp"
#include "tests/support/topic_reader.hpp"
#include "tests/support/world.hpp"
#include "turnstile/kafka/broker.hpp"
#include "turnstile/postgres/store.hpp"
#include "turnstile/sender.hpp"
#include "turnstile/turnstile.hpp"

namespace turnstile::test {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

class RequestsFixture {
 public:
  explicit RequestsFixture(int partitions = 3, const std::string& more = {})
      : world_(WorldOptions{.partitions = partitions, .session_timeout_ms = 3'000, .handler_timeout = "2s"}),
        settings_("mode = \"numbered\"\n" + more) {}
  World* operator->() noexcept { return &world_; }
  [[nodiscard]] Config config(const std::string& settings = {}) const {
    return world_.config(settings_ + settings, kLocks);
  }
  Process consumer(const std::map<std::string, std::string>& environment = {}, const std::string& more = {}) {
    return world_.consumer(world_.toml(settings_ + more + "batch = 20\n", kLocks), environment);
  }
  std::shared_ptr<ports::Producers> producers() { return postgres::open_store(*config().postgres)->producers(); }
  std::unique_ptr<NumberedSender> sender() {
    return std::make_unique<NumberedSender>(world_.broker(), producers(), NumberedSender::Options{.name = "shop"});
  }
  OwnedMessage message(const std::string& id, std::optional<std::string> key = std::nullopt) {
    OwnedMessage message;
    message.topic = world_.topic();
    message.key = std::move(key);
    message.payload = id;
    message.headers = {{"message-id", id}};
    return message;
  }
  /// Sends a message whose number the test chooses.
  void send(OwnedMessage message, const ports::ProducerSession& session, std::int64_t number) {
    stamp_request(message, session, number);
    message.partition = -1;
    world_.publish(message);
  }
  void expect_effects(std::int64_t count) {
    EXPECT_TRUE(eventually([&] { return world_.effects().distinct == count && world_.caught_up(); }, 90s))
        << world_.effects().distinct << " of " << count << "\n"
        << world_.output();
    EXPECT_EQ(world_.effects().rows, count) << "an effect was made twice";
    EXPECT_EQ(world_.query("SELECT count(*) FROM inbox"), "0");
  }
  Finished cli(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"--config", folder_.path() / "c.toml"});
    folder_.write("c.toml", world_.toml(settings_, kLocks));
    return CliProcess(arguments, {}, folder_.path()).wait(60s);
  }

 private:
  static constexpr const char* kLocks = "lock_timeout = \"1s\"\n";
  World world_;
  const std::string settings_;
  TemporaryFolder folder_;
};

class RequestsKilledAt : public ::testing::TestWithParam<const char*> {};

TEST_P(RequestsKilledAt, loses_nothing_and_repeats_nothing) {
  TURNSTILE_NEEDS_SERVERS();
#if !defined(TURNSTILE_FAILPOINTS)
  GTEST_SKIP() << "this build has no failpoints";
#endif
  RequestsFixture world;
  const auto sender = world.sender();
  std::vector<OwnedMessage> messages;
  for (int i = 0; i < 500; ++i) {
    const auto stamped = sender->stamp(
        world.message("m" + std::to_string(i), i % 2 == 0 ? std::optional("k" + std::to_string(i % 7)) : std::nullopt));
    for (int copies = i % 10 == 0 ? 2 : 1; copies > 0; --copies) messages.push_back(stamped.message);
  }
  for (const auto& fate : sender->send(messages))
    ASSERT_EQ(fate.kind, ports::BrokerSender::Fate::Kind::sent) << fate.why;
  const char* const times = std::string_view(GetParam()) == "before-offset-commit" ? ":1" : ":3";
  Process victim = world.consumer({{"TURNSTILE_FAILPOINT", GetParam() + std::string(times)}});
  EXPECT_EQ(victim.wait(60s), -SIGKILL) << "the victim did not come by " << GetParam() << "\n" << world->output();
  Process successor = world.consumer();
  world.expect_effects(500);
  EXPECT_EQ(world->query("SELECT count(*) FROM producer_window"), "3") << "one row of the producer in each partition";
  successor.signal(SIGTERM);
  EXPECT_EQ(successor.wait(20s), 0);
}

INSTANTIATE_TEST_SUITE_P(EachStep, RequestsKilledAt,
                         ::testing::Values("after-claim", "after-handler", "before-commit", "after-commit",
                                           "before-offset-commit", "before-release"),
                         step_name);

/// The amount of stored data does not grow with the messages, whichever of them are repeated.
TEST(Requests, a_million_of_them_leave_a_row_of_each_producer_and_partition) {
  TURNSTILE_NEEDS_SERVERS();
  constexpr std::int64_t kMessages = 1'000'000, kAtOnce = 20'000, kProducers = 2;
  RequestsFixture world(2);
  static_cast<void>(world->query("CREATE TABLE counted (messages bigint NOT NULL)"));
  const std::string count = "INSERT INTO " + world->schema() + ".counted VALUES ($1)";
  Running consumer(world.config("batch = 2000\n"), [&](Consumer& app) {
    app.topic(world->topic(), [&](std::span<const Message> messages, Context& context) {
      context.defer(count, static_cast<std::int64_t>(messages.size()));
    });
  });
  std::int64_t repeated = 0;
  for (std::int64_t p = 0; p < kProducers; ++p) {
    const auto sender = world.sender();
    for (std::int64_t sent = 0; sent < kMessages / kProducers; sent += kAtOnce) {
      std::vector<OwnedMessage> messages;
      for (std::int64_t i = 0; i < kAtOnce; ++i) {
        OwnedMessage bare;
        bare.topic = world->topic();
        bare.payload = "x";
        messages.push_back(sender->stamp(std::move(bare)).message);
        if (i % 1'000 != 0) continue;
        messages.push_back(messages.back());
        ++repeated;
      }
      for (const auto& fate : sender->send(messages))
        ASSERT_EQ(fate.kind, ports::BrokerSender::Fate::Kind::sent) << fate.why;
    }
  }
  const auto counted = [&] { return world->query("SELECT coalesce(sum(messages), 0) FROM counted"); };
  EXPECT_TRUE(eventually([&] { return counted() == std::to_string(kMessages) && world->caught_up(); }, 120s))
      << counted() << "\n"
      << consumer.log_text();
  EXPECT_GT(repeated, 0);
  EXPECT_EQ(world->query("SELECT count(*) FROM producer"), "2");
  EXPECT_EQ(world->query("SELECT count(*) FROM producer_window"), "4");
  EXPECT_EQ(world->query("SELECT count(*) FROM progress"), "2");
  EXPECT_EQ(
      world->query(
          "SELECT (SELECT count(*) FROM producer_response) + (SELECT count(*) FROM inbox) + (SELECT count(*) FROM dead)"),
      "0");
  // Rows that are updated in place leave old versions. PostgreSQL removes them when it meets them.
  EXPECT_LT(
      std::stoll(world->query("SELECT pg_total_relation_size('producer_window') + pg_total_relation_size('progress')")),
      2'000'000);
  EXPECT_EQ(consumer.stop(), "");
}

/// The response is kept until the producer acknowledges it.
TEST(Requests, a_request_that_is_sent_again_gets_the_same_response) {
  TURNSTILE_NEEDS_SERVERS();
  RequestsFixture world(1);
  const std::string replies = world->add_topic("replies");
  Running consumer(world.config("duplicates = \"replay\"\nreply_topics = \"" + replies + "\"\n"), [&](Consumer& app) {
    app.topic(world->topic(),
              [&, runs = std::make_shared<std::atomic<int>>(0)](const Message& message, Context& context) {
                make_effect(world->schema(), message, context);
                context.reply("run " + std::to_string(++*runs) + std::string("\0\xff", 2));
              });
  });
  NumberedSender sender(world->broker(), world.producers(),
                        {.name = "shop", .acknowledge = NumberedSender::Acknowledge::by_hand});
  const auto first = sender.stamp(world.message("a"));
  const OwnedMessage thrice[] = {first.message, first.message, first.message};
  sender.send(thrice);
  const auto kept = [&] { return world->query("SELECT count(*) FROM producer_response"); };
  EXPECT_TRUE(eventually([&] { return world->caught_up() && kept() == "1"; }));
  TopicReader answers(replies);
  EXPECT_TRUE(answers.until([&] { return answers.read.size() == 3; }));
  for (const auto& reply : answers.read) EXPECT_EQ(reply.payload, "run 1" + std::string("\0\xff", 2));
  sender.acknowledge(first);
  const OwnedMessage next[] = {world.message("b")};
  sender.send(next);
  EXPECT_TRUE(eventually([&] { return world->effects().rows == 2; }));
  EXPECT_EQ(world->query("SELECT string_agg(number::text, ',') FROM producer_response"), "2");
  EXPECT_EQ(consumer.stop(), "");
}

class DeadRequestsKilledAt : public ::testing::TestWithParam<const char*> {};

/// A request that may not run is never skipped without a dead letter. A request that runs is answered, wherever the
/// process dies.
TEST_P(DeadRequestsKilledAt, are_neither_lost_nor_run) {
  TURNSTILE_NEEDS_SERVERS();
#if !defined(TURNSTILE_FAILPOINTS)
  GTEST_SKIP() << "this build has no failpoints";
#endif
  RequestsFixture world(1, "request_window = 16\nduplicates = \"replay\"\n");
  const std::string replies = world->add_topic("replies");
  const std::string answering = "reply_topics = \"" + replies + "\"\n";
  const auto shop = world.producers()->open({.name = "shop"});
  const ports::ProducerSession nobody{MessageId::from("nobody"), shop.secret};
  const auto send = [&](const std::string& id, const ports::ProducerSession& session, std::int64_t number) {
    world.send(world.message(id), session, number);
  };
  int fresh = 0, late = 0, unknown = 0;
  for (std::int64_t number = 1; number <= 300; ++number) {
    if (number % 50 == 0) continue;  // these are sent too late
    send("m" + std::to_string(number), shop, number);
    ++fresh;
    if (number % 50 == 30 && number > 50) send("late " + std::to_string(++late), shop, number / 50 * 50);
    if (number % 40 == 0) send("unknown " + std::to_string(++unknown), nobody, number);
  }
  const auto environment = [&](const std::string& failpoint) {
    std::map<std::string, std::string> values{{"PUBLISH", replies}};
    if (!failpoint.empty()) values["TURNSTILE_FAILPOINT"] = failpoint;
    return values;
  };
  Process victim = world.consumer(environment(GetParam() + std::string(":2")), answering);
  EXPECT_EQ(victim.wait(60s), -SIGKILL) << "the victim did not come by " << GetParam() << "\n" << world->output();
  Process successor = world.consumer(environment(""), answering);
  world.expect_effects(fresh);
  EXPECT_EQ(world->query(
                "SELECT string_agg(reason || ' ' || n, ', ' ORDER BY reason) FROM "
                "(SELECT reason, count(DISTINCT convert_from(record_payload, 'UTF8')) n FROM dead GROUP BY reason) r"),
            "no_session " + std::to_string(unknown) + ", outside_window " + std::to_string(late));
  EXPECT_EQ(world->query("SELECT count(*) FROM dead"), std::to_string(unknown + late));
  TopicReader sent(replies);
  const auto all = 2U * static_cast<std::size_t>(fresh);  // the message that each request publishes, and its reply
  EXPECT_TRUE(sent.until([&] { return sent.ids().size() == all; })) << sent.ids().size() << " of " << all;
  for (const auto& [message, ids] : sent.ids()) EXPECT_EQ(ids.size(), 1U) << message;
  successor.signal(SIGTERM);
  EXPECT_EQ(successor.wait(20s), 0);
}

INSTANTIATE_TEST_SUITE_P(EachStep, DeadRequestsKilledAt,
                         ::testing::Values("after-claim", "after-handler", "before-commit", "after-commit",
                                           "before-dead-letter", "dead-letter-sent", "after-dead-letter"),
                         step_name);

/// A producer survives an outage of the database: it sends meanwhile, and has the same session afterwards.
TEST(Requests, keep_their_session_while_the_database_is_away) {
  TURNSTILE_NEEDS_SERVERS();
  RequestsFixture world(1);
  Sql sql(*postgres_url());
  TcpProxy proxy = proxy_to(sql);
  PostgresSettings settings = *world.config().postgres;
  settings.url = Secret(url_through(*postgres_url(), proxy.port()));
  const auto log = std::make_shared<spdlog::sinks::ringbuffer_sink_mt>(100);
  const auto says = [&](const std::string& text) {
    const auto lines = log->last_formatted();
    return std::any_of(lines.begin(), lines.end(),
                       [&](const std::string& line) { return line.find(text) != std::string::npos; });
  };
  NumberedSender sender(world->broker(), postgres::open_store(settings)->producers(),
                        {.name = "shop", .expiry = 6s, .logger = std::make_shared<spdlog::logger>("shop", log)});
  const auto send = [&](const std::string& id) {
    const OwnedMessage one[] = {world.message(id)};
    EXPECT_EQ(sender.send(one).front().kind, ports::BrokerSender::Fate::Kind::sent);
  };
  const auto heartbeat = [&] { return world->query("SELECT max(heartbeat_at) FROM producer"); };
  const MessageId session = sender.session();
  send("before");
  proxy.cut(true);
  const std::string last = heartbeat();
  send("meanwhile");
  EXPECT_TRUE(eventually([&] { return says("its heartbeat could not be sent"); }));
  EXPECT_EQ(heartbeat(), last);
  proxy.cut(false);
  EXPECT_TRUE(eventually([&] { return says("its heartbeats are sent again"); }));
  EXPECT_NE(heartbeat(), last);
  send("after");
  EXPECT_EQ(sender.session(), session);
  Process consumer = world.consumer();
  world.expect_effects(3);
  EXPECT_EQ(world->query("SELECT count(*) FROM producer"), "1");
  EXPECT_EQ(world->query("SELECT high FROM producer_window"), "3");
  consumer.signal(SIGTERM);
  EXPECT_EQ(consumer.wait(20s), 0);
}

/// One request dies, is sent again and takes effect. A replay of the dead letter then makes no second effect.
TEST(Requests, that_took_effect_when_they_were_sent_again_are_not_run_by_a_replay) {
  TURNSTILE_NEEDS_SERVERS();
  RequestsFixture world(1);
  Process consumer = world.consumer();
  const auto shop = world.producers()->open({.name = "shop"});
  const auto send = [&](const std::string& payload) {
    OwnedMessage message = world.message("order");
    message.payload = payload;
    world.send(std::move(message), shop, 1);
  };
  send("throw");
  EXPECT_TRUE(eventually([&] { return world->query("SELECT string_agg(reason, ',') FROM dead") == "failed"; }))
      << world->output();
  send("well");
  world.expect_effects(1);
  const auto replayed = world.cli({"dlq", "replay", "--all"});
  EXPECT_EQ(replayed.code, 0) << replayed.err;
  EXPECT_TRUE(eventually([&] { return world->caught_up(); }));
  world.expect_effects(1);
  EXPECT_EQ(world->query("SELECT count(*) FROM dead"), "1");
  consumer.signal(SIGTERM);
  EXPECT_EQ(consumer.wait(20s), 0);
}

TEST(Requests, that_nobody_can_vouch_for_are_put_aside_and_run_when_somebody_says_so) {
  TURNSTILE_NEEDS_SERVERS();
  RequestsFixture world(1, "request_window = 16\n");
  Process consumer = world.consumer();
  const auto shop = world.producers()->open({.name = "shop"});
  const auto send = [&](const std::string& id, const ports::ProducerSession& session, std::int64_t number) {
    world.send(world.message(id), session, number);
  };
  send("first", shop, 1);
  send("far", shop, 1'000'000'000'000);
  send("late", shop, 2);
  send("forged", {shop.id, std::string(32, 'x')}, 3);
  send("unknown", {MessageId::from("nobody"), shop.secret}, 1);
  send("zero", shop, 0);
  send("negative", shop, -1);
  const auto reasons = [&] {
    return world->query(
        "SELECT string_agg(convert_from(record_payload, 'UTF8') || ' ' || reason, ', ' ORDER BY record_offset) FROM dead");
  };
  EXPECT_TRUE(eventually([&] { return world->caught_up(); }));
  EXPECT_EQ(reasons(), "late outside_window, forged forged, unknown no_session, zero missing_id, negative missing_id");
  world.expect_effects(2);

  const auto late = world->query("SELECT id FROM dead WHERE reason = 'outside_window'");
  const auto unknown = world->query("SELECT id FROM dead WHERE reason = 'no_session'");
  for (const auto& number : {late, unknown}) {
    const auto replayed = world.cli({"dlq", "replay", number});
    EXPECT_EQ(replayed.code, 0) << replayed.err;
  }
  world.expect_effects(4);
  // The state after a crash between publishing and marking.
  static_cast<void>(world->query("UPDATE dead SET replayed_at = NULL WHERE id = " + late));
  EXPECT_EQ(world.cli({"dlq", "replay", late}).code, 0);
  EXPECT_TRUE(eventually([&] { return world->caught_up(); }));
  world.expect_effects(4);
  consumer.signal(SIGTERM);
  EXPECT_EQ(consumer.wait(20s), 0);
}

TEST(Requests, of_a_session_that_has_expired_are_not_run) {
  TURNSTILE_NEEDS_SERVERS();
  RequestsFixture world(1);
  Process consumer = world.consumer();
  const auto brief = world.producers()->open({.name = "brief", .expiry = 100ms});
  const auto send = [&](const std::string& id, std::int64_t number) { world.send(world.message(id), brief, number); };
  send("alive", 1);
  world.expect_effects(1);
  EXPECT_TRUE(eventually([&] {
    return world->query("SELECT count(*) FROM producer WHERE expired_at IS NOT NULL") == "1";
  })) << "the consumer marks it within ten seconds\n"
      << world->output();
  send("dead", 2);
  EXPECT_TRUE(eventually([&] { return world->query("SELECT string_agg(reason, ',') FROM dead") == "no_session"; }))
      << world->output();
  EXPECT_THAT(world->output(), HasSubstr("producer sessions have expired"));
  world.expect_effects(1);
  consumer.signal(SIGTERM);
  EXPECT_EQ(consumer.wait(20s), 0);
}

}  // namespace
}  // namespace turnstile::test
