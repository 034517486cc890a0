// The token log is a topic that anybody may write to, misconfigure or delete.

#include <gtest/gtest.h>
#include <malloc.h>

#include <fstream>
#include <future>

#include "tests/support/running.hpp"
#include "tokens/wire.hpp"
#include "tokens_fixture.hpp"
#include "turnstile/error.hpp"
#include "turnstile/kafka/admin.hpp"
#include "turnstile/token_service.hpp"
#include "turnstile/turnstile.hpp"

namespace turnstile::test {
namespace {

using namespace std::chrono_literals;

kafka::Settings brokers() { return {{"bootstrap.servers", kafka_servers()}}; }

/// The last event in the log from the member of this process.
tokens::Event last_of(const std::vector<LoggedEvent>& log, pid_t pid) {
  tokens::Event last;
  tokens::MemberId member = 0;
  for (const LoggedEvent& record : log) {
    const auto* joined = std::get_if<tokens::Joined>(&record.event.body);
    if (joined != nullptr && static_cast<pid_t>(joined->pid) == pid) member = record.event.member;
    if (record.event.member == member) last = record.event;
  }
  return last;
}

/// The topic contains bytes that are no events, and events that no member wrote.
TEST(TokensTopic, garbage_and_forged_events_change_nothing) {
  TURNSTILE_NEEDS_SERVERS();
  LimitedFixture world({.limit = 4, .lease = 3s, .session_timeout_ms = 20'000});
  world->publish(1'200);
  Process one = world.consumer();
  Process other = world.consumer();
  ASSERT_TRUE(world.all_at_work({&one, &other})) << world->output();
  const auto before = replay(world.token_log());

  std::vector<std::string> garbage{"", "x", std::string(3, '\0'), std::string(100'000, '\xff')};
  for (int i = 0; i < 60; ++i)
    garbage.push_back(std::string(static_cast<std::size_t>(i), static_cast<char>(i * 37)) + "garbage");
  append_to_topic(world.token_topic(), garbage);

  const tokens::Event real = last_of(world.token_log(), one.pid());
  const auto stranger = [&](decltype(tokens::Event::body) body) {
    return tokens::encode({.member = 4711, .epoch = 1, .seq = 9, .body = std::move(body)});
  };
  const tokens::Line greedy{.limiter = world->topic(), .limit = 1'000, .wants = 1'000};
  append_to_topic(
      world.token_topic(),
      {stranger(tokens::Acquire{greedy}), stranger(tokens::Release{greedy}), stranger(tokens::Keep{{greedy}, {}}),
       stranger(tokens::Expire{real.member, world.token_log().back().position + 1'000}), stranger(tokens::Left{}),
       stranger(tokens::Drained{}), stranger(tokens::PartitionsClaimed{{{{world->topic(), 0}, 1'000'000, 0}}}),
       stranger(tokens::VersionSet{99}), stranger(tokens::LimitSet{"", 5, 0}),
       tokens::encode(real),  // a copy of an event that was read
       tokens::encode({.member = real.member, .epoch = real.epoch + 7, .seq = 1, .body = tokens::Left{}})});
  const auto end = world.token_log().back().position;
  // All members have read past these records, and work.
  ASSERT_TRUE(eventually([&] { return world.token_log().back().position > end + 4; })) << world->output();
  const auto after = replay(world.token_log());
  EXPECT_EQ(after.unknown - before.unknown, garbage.size()) << "counted";
  EXPECT_GE(after.ignored - before.ignored, garbage.size() + 11);
  EXPECT_EQ(after.version, before.version);
  EXPECT_EQ(after.limiters.at(world->topic()).limit(), 4U);
  for (const auto& [id, member] : before.members) EXPECT_TRUE(after.members.contains(id)) << "a member was thrown out";
  const Nanos later = monotonic_ns();
  EXPECT_TRUE(world.runs(one, 2, later) && world.runs(other, 2, later)) << world->output();
  for (Process* process : {&one, &other}) process->signal(SIGTERM);
  for (Process* process : {&one, &other}) EXPECT_EQ(process->wait(30s), 0) << world->output();
  EXPECT_EQ(world.outside().most(), 4);
}

/// Another program writes an event in a member's name. Only the member itself can detect that: it begins anew as a new
/// member, and its old account is left to expire.
TEST(TokensTopic, a_member_in_whose_name_others_write_begins_anew_and_the_limit_holds) {
  TURNSTILE_NEEDS_SERVERS();
  constexpr auto lease = 3s;
  LimitedFixture world({.limit = 4, .lease = lease, .session_timeout_ms = 20'000});
  world->publish(1'500);
  Process one = world.consumer();
  Process other = world.consumer();
  ASSERT_TRUE(world.all_at_work({&one, &other})) << world->output();
  const tokens::Event real = last_of(world.token_log(), one.pid());
  append_to_topic(world.token_topic(),
                  {tokens::encode({.member = real.member,
                                   .epoch = real.epoch,
                                   .seq = real.seq + 1'000'000,
                                   .body = tokens::Acquire{{.limiter = world->topic(), .limit = 4, .wants = 1'000}}})});
  const Nanos forged = monotonic_ns();
  ASSERT_TRUE(eventually([&] {
    const auto now = last_of(world.token_log(), one.pid()).member;
    return now != real.member && !replay(world.token_log()).members.contains(real.member);
  })) << world->output();
  tell("forged in a member's name: until its old account had expired", monotonic_ns() - forged);
  const Nanos later = monotonic_ns();
  EXPECT_TRUE(world.runs(one, 2, later) && world.runs(other, 2, later)) << world->output();
  for (Process* process : {&one, &other}) process->signal(SIGTERM);
  for (Process* process : {&one, &other}) EXPECT_EQ(process->wait(30s), 0) << world->output();
  EXPECT_LE(world.most_that_counts(), 4);
}

struct WrongTopic {
  const char* name;
  std::string suffix;  ///< appended to the name of the group's token topic
  int partitions = 1;
  std::map<std::string, std::string> settings{};
  int replication = 0;  ///< the replication that the configuration asks for
  std::vector<std::string> says;
};
void PrintTo(const WrongTopic& topic, std::ostream* out) { *out << topic.name; }

class TokensTopicRefused : public ::testing::TestWithParam<WrongTopic> {};

/// The token topic has wrong settings, and the consumer refuses to start.
TEST_P(TokensTopicRefused, with_the_command_that_puts_it_right) {
  TURNSTILE_NEEDS_SERVERS();
  LimitedFixture world({.limit = 4});
  const std::string topic = world.token_topic() + GetParam().suffix;
  kafka::create_topic(brokers(), {topic, GetParam().partitions, 1, GetParam().settings});
  const std::string more = world.limits(60s) + "replication = " + std::to_string(GetParam().replication) + "\n";
  Running consumer(world->config("limit = 4", more),
                   [&](Consumer& app) { app.topic(world->topic(), [](const Message&) {}); });
  const std::string why = consumer.failure(60s);
  EXPECT_NE(why.find(topic), std::string::npos) << why;
  EXPECT_NE(why.find(kafka_servers()), std::string::npos) << why;
  for (const auto& said : GetParam().says) EXPECT_NE(why.find(said), std::string::npos) << said << "\n" << why;
}

INSTANTIATE_TEST_SUITE_P(
    Each, TokensTopicRefused,
    ::testing::Values(WrongTopic{.name = "partitions",
                                 .suffix = "",
                                 .partitions = 3,
                                 .says = {"has 3 partitions", "is not a token log", "Name another topic", "--create",
                                          ".tokens.snapshots --partitions 3"}},
                      WrongTopic{
                          .name = "compacted",
                          .suffix = "",
                          .settings = {{"cleanup.policy", "compact"}},
                          .says = {"cleanup.policy=compact", "kafka-configs.sh", "--add-config cleanup.policy=delete"}},
                      WrongTopic{.name = "compacted_and_deleted",
                                 .suffix = "",
                                 .settings = {{"cleanup.policy", "compact,delete"}},
                                 .says = {"kafka-configs.sh", "--add-config cleanup.policy=delete"}},
                      WrongTopic{.name = "replicas",
                                 .suffix = "",
                                 .replication = 3,
                                 .says = {"has 1 replica, fewer than the required 3", "kafka-reassign-partitions.sh",
                                          "\"replicas\":[ID,ID,ID]"}},
                      WrongTopic{.name = "snapshots_not_compacted",
                                 .suffix = ".snapshots",
                                 .settings = {{"cleanup.policy", "delete"}},
                                 .says = {"kafka-configs.sh", "--add-config cleanup.policy=compact"}}),
    [](const auto& c) { return std::string(c.param.name); });

TEST(TokensTopic, that_cannot_be_created_says_how_to) {
  TURNSTILE_NEEDS_SERVERS();
  LimitedFixture world({.limit = 4});
  Running consumer(world->config("limit = 4", world.limits(60s) + "replication = 3\n"),
                   [&](Consumer& app) { app.topic(world->topic(), [](const Message&) {}); });
  const std::string why = consumer.failure(60s);
  for (const auto& said : {"could not be created", "kafka-topics.sh", "--replication-factor 3"})
    EXPECT_NE(why.find(said), std::string::npos) << said << "\n" << why;
}

std::size_t count(const std::string& text, const std::string& what) {
  std::size_t n = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
  return n;
}

class TokensTopicGone : public ::testing::TestWithParam<bool> {};

/// The token topic is deleted, or deleted and created again. A topic that is created again under the same name is
/// another log.
TEST_P(TokensTopicGone, ends_all_starts_with_one_clear_error) {
  TURNSTILE_NEEDS_SERVERS();
  LimitedFixture world({.limit = 4, .lease = 4s, .session_timeout_ms = 20'000});
  world->publish(2'000);
  Process consumer = world.consumer();
  ASSERT_TRUE(world.all_at_work({&consumer})) << world->output();
  delete_topic(world.token_topic());
  const Nanos deleted = monotonic_ns();
  if (GetParam()) {
    ASSERT_TRUE(eventually([&] {
      try {
        return kafka::create_topic(brokers(), {world.token_topic(), 1, 1, {{"cleanup.policy", "delete"}}});
      } catch (const BrokerError&) {
        return false;  // the topic is still being deleted
      }
    }));
  }
  EXPECT_TRUE(eventually([&] { return count(world->output(), "it is unknown which members hold permits") > 0; }, 30s))
      << world->output();
  ASSERT_TRUE(eventually([&] { return world.outside().running(consumer.pid()) == 0; }, 30s)) << world->output();
  const Nanos idle = monotonic_ns();
  tell(GetParam() ? "topic created anew: until nothing ran" : "topic deleted: until nothing ran", idle - deleted);
  ASSERT_TRUE(eventually([&] { return monotonic_ns() > idle + 3 * kSecond_ns; }));
  EXPECT_EQ(world.outside().most({.from = idle}), 0) << "handlers were started";
  EXPECT_EQ(count(world->output(), "this consumer cannot continue"), 1U) << world->output();
  EXPECT_GE(count(world->output(), "it is unknown which members hold permits"), 1U) << world->output();
  EXPECT_GE(count(world->output(), "Stop all members of the domain, then start them again"), 1U) << world->output();
  EXPECT_EQ(consumer.wait(30s), 1) << "it ends by itself, so that what looks after processes starts it again\n"
                                   << world->output();
  EXPECT_LE(world.outside().most(), 4);
  // After a restart the consumer goes on: the first process that starts creates the topic.
  Process again = world.consumer();
  EXPECT_TRUE(world.runs(again, 4, idle)) << world->output();
}

std::string new_token_topic() { return "tokens-" + std::to_string(::getpid()) + "-" + std::to_string(monotonic_ns()); }

/// Joins as a member that keeps a snapshot every eight positions.
auto join_with_snapshots(const std::string& topic) {
  auto domain = kafka::open_limiters(brokers(), {.name = topic}, {.lease = 1s, .snapshot_every = 8},
                                     make_logger({"off", "text"}));
  EXPECT_TRUE(domain->wait_until_joined(20s));
  return domain;
}

/// The command that the error prints when a token topic is gone must work, whatever was left of the topic.
/// The test uses the limiters of connect(), which a TokenService and a Consumer of one program share.
TEST(TokensTopic, that_is_deleted_refuses_tokens_to_those_who_wait_and_to_those_who_ask) {
  if (kafka_servers().empty()) GTEST_SKIP() << "no Apache Kafka: TURNSTILE_TEST_KAFKA is not set";
  Config config;
  config.kafka = {{"bootstrap.servers", kafka_servers()}, {"group.id", "tokens"}};
  config.limits.topic = new_token_topic();
  config.limits.lease = 2s;
  TokenService tokens{connect(config).limiters};
  tokens.limit("psp", 1);
  const auto held = tokens.request("psp", 1, Priority::normal, 20s);
  ASSERT_TRUE(std::holds_alternative<Granted>(held));
  const auto refusal = [](const TokenAnswer& answer) {
    const auto* refused = std::get_if<Refused>(&answer);
    return refused != nullptr && refused->why == Refused::Why::no_more_starts ? refused->text : std::string();
  };
  auto waits = std::async(std::launch::async, [&] { return tokens.request("psp", 1, Priority::normal, 120s); });
  ASSERT_TRUE(eventually([&] { return tokens.waiting() == 1; }));
  delete_topic(config.limits.topic);
  EXPECT_NE(refusal(waits.get()).find(config.limits.topic), std::string::npos);
  EXPECT_NE(refusal(tokens.request("psp", 1, Priority::normal, 1s)), "");
}

TEST(TokensTopic, created_anew_is_read_from_its_own_beginning_though_snapshots_of_the_old_one_are_left) {
  if (kafka_servers().empty()) GTEST_SKIP() << "no Apache Kafka: TURNSTILE_TEST_KAFKA is not set";
  const std::string topic = new_token_topic();
  const auto join = [&] { return join_with_snapshots(topic); };
  {
    const auto domain = join();
    for (int limit = 1; limit < 40; ++limit) ASSERT_TRUE(domain->set_limit("psp", limit, 20s));
    ASSERT_TRUE(eventually([&] { return !read_token_topic(topic + ".snapshots").empty(); }));
  }
  delete_topic(topic);
  const auto domain = join();
  EXPECT_TRUE(domain->permits().limiters.empty()) << "what was set before went with the topic";
  EXPECT_TRUE(domain->set_limit("psp", 3, 20s));
  EXPECT_EQ(domain->halted(), "");
}

/// The most memory that this process used since the last call, in MB.
std::int64_t most_memory() {
  std::int64_t most = 0;
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) most = std::stoll(line.substr(6)) / 1'024;
  }
  std::ofstream("/proc/self/clear_refs") << 5;
  return most;
}

/// Compaction does not touch the segment that is being written, so a snapshot topic holds more snapshots than anybody
/// needs.
TEST(TokensTopic, a_newcomer_reads_one_snapshot_of_many) {
  if (kafka_servers().empty()) GTEST_SKIP() << "no Apache Kafka: TURNSTILE_TEST_KAFKA is not set";
  const std::string topic = new_token_topic();
  const auto join = [&] { return join_with_snapshots(topic); };
  const auto one = join(), other = join();
  const auto set_limits = [&] {
    for (int limit = 1; limit < 40; ++limit) EXPECT_TRUE(one->set_limit("psp", limit, 20s));
  };
  const std::string snapshots = topic + ".snapshots";
  set_limits();
  ASSERT_TRUE(eventually([&] { return end_of_topic(snapshots) > 0; }));
  for (int i = 0; i < 10; ++i) append_to_topic(snapshots, std::vector<std::string>(30, std::string(900'000, 'x')), "x");
  const auto before = end_of_topic(snapshots);
  set_limits();
  ASSERT_TRUE(eventually([&] { return end_of_topic(snapshots) > before; }));
  ::malloc_trim(0);
  most_memory();
  const auto without = most_memory();
  EXPECT_EQ(join()->permits().limiters.at(0).set, 39);
  EXPECT_LT(most_memory() - without, 60) << "MB, of 270 in the topic";
}

INSTANTIATE_TEST_SUITE_P(Each, TokensTopicGone, ::testing::Bool(),
                         [](const auto& c) { return c.param ? "and_created_anew" : "deleted"; });

}  // namespace
}  // namespace turnstile::test
