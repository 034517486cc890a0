// What handlers publish and reply reaches Apache Kafka if their effects are in PostgreSQL, and only then, also when the
// process is killed at each step.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "tests/support/cli.hpp"
#include "tests/support/topic_reader.hpp"
#include "tests/support/world.hpp"

namespace turnstile::test {
namespace {

using namespace std::chrono_literals;
using ::testing::Contains;
using ::testing::HasSubstr;

std::string id_of(const OwnedMessage& record) {
  for (const auto& header : record.headers) {
    if (header.name == "message-id") return header.value.value_or("null");
  }
  return "none";
}

// The process dies after the commit, and no other runs when the messages are due.
TEST(Scheduled, messages_survive_the_process_and_are_sent_once_they_are_due) {
  TURNSTILE_NEEDS_SERVERS();
#if !defined(TURNSTILE_FAILPOINTS)
  GTEST_SKIP() << "this build has no failpoints";
#endif
  World world(WorldOptions{.session_timeout_ms = 3'000, .handler_timeout = "2s"});
  const std::string out = world.add_topic("out", 2);
  world.publish(100);
  const std::string toml = world.toml("order = \"key\"\nbatch = 20", "lock_timeout = \"1s\"\n");
  const std::map<std::string, std::string> in_two_seconds{{"PUBLISH", out}, {"PUBLISH_IN_MS", "2000"}};
  auto dies = in_two_seconds;
  dies["TURNSTILE_FAILPOINT"] = "after-commit:2";
  Process victim = world.consumer(toml, dies);
  EXPECT_EQ(victim.wait(60s), -SIGKILL) << world.output();
  EXPECT_NE(world.query("SELECT count(*) FROM scheduled"), "0");
  EXPECT_EQ(world.query("SELECT count(*) FROM outbox"), "0");
  Process successor = world.consumer(toml, in_two_seconds);
  TopicReader published(out);
  EXPECT_TRUE(published.until([&] { return published.payloads().size() == 100; }, 90s)) << world.output();
  EXPECT_TRUE(eventually([&] { return world.query("SELECT count(*) FROM scheduled") == "0"; }));
  EXPECT_EQ(world.effects().rows, 100);
  std::set<std::string> ids;
  for (const auto& record : published.read) ids.insert(id_of(record));
  EXPECT_EQ(ids.size(), 100U);
  // The handlers' transactions began before the messages were written, and those were sent two seconds later.
  EXPECT_EQ(world.query("SELECT count(*) FROM outbox"), "0");
  successor.signal(SIGTERM);
  EXPECT_EQ(successor.wait(20s), 0) << world.output();
}

// Nothing is published, so the relay sleeps.
TEST(Scheduled, a_relay_that_sleeps_wakes_up_for_a_message_that_is_due) {
  TURNSTILE_NEEDS_SERVERS();
  World world(1);
  const std::string out = world.add_topic("out", 1);
  Process consumer = world.consumer(world.toml());
  const std::string insert = "INSERT INTO scheduled (due_at, topic, record_payload) VALUES (now() + interval '";
  EXPECT_EQ(world.query(insert + "1 hour', '" + out + "', 'much later') RETURNING 1"), "1");
  EXPECT_EQ(world.query(insert + "3 seconds', '" + out + "', 'soon') RETURNING 1"), "1");
  TopicReader published(out);
  EXPECT_TRUE(published.until([&] { return published.payloads().contains("soon"); }, 60s)) << world.output();
  EXPECT_FALSE(published.payloads().contains("much later"));
  EXPECT_GE(std::stod(world.query(
                "SELECT extract(epoch FROM now() - (min(written_at) + interval '3 seconds')) FROM scheduled")),
            0);
}

class OutboxKilledAt : public ::testing::TestWithParam<const char*> {};

TEST_P(OutboxKilledAt, loses_nothing_and_repeats_only_what_can_be_told_apart) {
  TURNSTILE_NEEDS_SERVERS();
#if !defined(TURNSTILE_FAILPOINTS)
  GTEST_SKIP() << "this build has no failpoints";
#endif
  World world(WorldOptions{.session_timeout_ms = 3'000, .handler_timeout = "2s"});
  const std::string out = world.add_topic("out", 2), replies = world.add_topic("replies");
  world.publish(300);
  const std::string toml =
      world.toml("order = \"key\"\nbatch = 20\nreply_topics = \"" + replies + "\"", "lock_timeout = \"1s\"\n");
  Process victim = world.consumer(toml, {{"PUBLISH", out}, {"TURNSTILE_FAILPOINT", std::string(GetParam()) + ":2"}});
  EXPECT_EQ(victim.wait(60s), -SIGKILL) << "the victim did not come by " << GetParam() << "\n" << world.output();
  Process successor = world.consumer(toml, {{"PUBLISH", out}});

  TopicReader published(out), replied(replies);
  EXPECT_TRUE(published.until([&] { return published.payloads().size() == 300; }, 90s)) << world.output();
  EXPECT_TRUE(replied.until([&] { return replied.payloads().size() == 300; }));
  EXPECT_TRUE(eventually([&] { return world.query("SELECT count(*) FROM outbox") == "0"; })) << world.output();
  EXPECT_EQ(world.effects().rows, 300);

  // A copy has the id of the first record. If the copies are dropped, the messages of a key are in the order of the
  // effects of that key.
  std::map<std::string, std::string> payload_of;
  std::map<std::string, std::vector<std::string>> of_key;
  for (const auto& record : published.read) {
    const auto [first, is_new] = payload_of.emplace(id_of(record), *record.payload);
    EXPECT_EQ(first->second, record.payload);
    if (is_new) of_key[*record.key].push_back(*record.payload);
  }
  EXPECT_EQ(payload_of.size(), 300U);
  for (const auto& [key, payloads] : of_key) {
    std::string made = world.query(
        "SELECT string_agg(id, ' ' ORDER BY record_partition, record_offset) FROM effect WHERE record_key = '" + key +
        "'");
    std::string sent;
    for (const auto& payload : payloads) sent += (sent.empty() ? "" : " ") + payload;
    EXPECT_EQ(sent, made) << "key " << key;
  }
  std::map<std::string, std::string> reply_ids;
  for (const auto& record : replied.read) {
    EXPECT_EQ(reply_ids.emplace(*record.payload, id_of(record)).first->second, id_of(record));
  }
  successor.signal(SIGTERM);
  EXPECT_EQ(successor.wait(20s), 0) << world.output();
}

INSTANTIATE_TEST_SUITE_P(EachStep, OutboxKilledAt,
                         ::testing::Values("before-commit", "after-commit", "before-relay", "after-relay"), step_name);

TEST(Outbox, replays_the_response_to_a_duplicate_bit_for_bit) {
  TURNSTILE_NEEDS_SERVERS();
  World world(1);
  const std::string replies = world.add_topic("replies"), out = world.add_topic("out");
  Process consumer =
      world.consumer(world.toml("duplicates = \"replay\"\nreply_topics = \"" + replies + "\""), {{"PUBLISH", out}});
  TopicReader reader(replies);
  world.publish({{"message-id", "m"}, {"correlation-id", "first"}}, "p");
  ASSERT_TRUE(reader.until([&] { return reader.read.size() == 1; })) << world.output();
  world.publish({{"message-id", "m"}, {"correlation-id", "second"}}, "p");
  ASSERT_TRUE(reader.until([&] { return reader.read.size() == 2; })) << world.output();
  EXPECT_EQ(reader.read[0].payload, "re m");
  EXPECT_EQ(reader.read[1].payload, "re m");
  EXPECT_EQ(id_of(reader.read[0]), id_of(reader.read[1]));
  EXPECT_THAT(reader.read[1].headers, Contains(Header{"correlation-id", "second"}));
  EXPECT_EQ(world.effects().rows, 1);
}

TEST(Outbox, puts_aside_what_goes_to_a_topic_that_is_gone_and_goes_on) {
  TURNSTILE_NEEDS_SERVERS();
  World world(1);
  const std::string out = world.add_topic("out");
  // The row is written as a program without Kafka would write it.
  (void)world.query("INSERT INTO outbox (topic, record_key, record_payload) VALUES ('" + world.topic() +
                    ".gone', 'k', 'lost?') RETURNING 1");
  (void)world.query("INSERT INTO outbox (topic, record_key, record_payload) VALUES ('" + out +
                    "', 'k', 'behind it') RETURNING 1");
  Process consumer = world.consumer(world.toml());
  TopicReader reader(out);
  EXPECT_TRUE(reader.until([&] { return reader.payloads().contains("behind it"); })) << world.output();
  EXPECT_TRUE(eventually([&] { return world.query("SELECT count(*) FROM outbox WHERE shard = -1") == "1"; }));
  EXPECT_THAT(world.query("SELECT refused FROM outbox"), HasSubstr("Create the topic"));
  EXPECT_THAT(world.output(), HasSubstr("is kept back"));
  EXPECT_TRUE(eventually([&] { return world.query("SELECT count(*) FROM outbox WHERE shard >= 0") == "0"; }));

  // The advice in the log works at once: the relay remembers that the topic was missing.
  TopicReader late(world.add_topic("gone"));
  Cli cli;
  cli.environment() = {{"TURNSTILE_POSTGRES_URL", *postgres_url()}, {"TURNSTILE_POSTGRES_SCHEMA", world.schema()}};
  EXPECT_EQ(cli.run("outbox", "retry", "1").code, 0);
  EXPECT_TRUE(late.until([&] { return late.payloads().contains("lost?"); })) << world.output();
  EXPECT_TRUE(eventually([&] { return world.query("SELECT count(*) FROM outbox") == "0"; })) << "it was sent before";
}

TEST(Outbox, takes_the_shards_of_a_dead_relay_whose_lease_is_of_a_clock_that_was_set_back) {
  TURNSTILE_NEEDS_SERVERS();
  World world(1);
  const std::string out = world.add_topic("out");
  static_cast<void>(world.query("UPDATE outbox_relay SET owner = 'dead', expires_at = now() + interval '2 hours'"));
  Process consumer = world.consumer(world.toml(), {{"PUBLISH", out}});
  world.publish("1", "p");
  TopicReader published(out);
  EXPECT_TRUE(published.until([&] { return published.payloads().size() == 1; })) << world.output();
}

// A table without the constraint of today may contain such rows.
TEST(Outbox, puts_aside_rows_that_are_no_messages_and_goes_on) {
  TURNSTILE_NEEDS_SERVERS();
  World world(1);
  const std::string out = world.add_topic("out");
  const auto write = [&](const std::string& payload, const std::string& headers) {
    return "INSERT INTO outbox (topic, record_payload, header_names, header_values) VALUES ('" + out + "', '" +
           payload + "', " + headers + ")";
  };
  EXPECT_ANY_THROW(static_cast<void>(world.query(write("refused by the table", "'{{a,b}}', '{{a,b}}'"))));
  static_cast<void>(world.query("ALTER TABLE outbox DROP CONSTRAINT headers_are_two_lists"));
  static_cast<void>(world.query(write("two dimensions", "'{{a,b},{c,d}}', '{{a,b},{c,d}}'")));
  static_cast<void>(world.query(write("no name", "'{a,NULL}', '{a,b}'")));
  static_cast<void>(world.query(write("fine", "'[5:6]={a,b}', '{a,NULL}'")));
  Process consumer = world.consumer(world.toml(), {{"PUBLISH", out}});
  TopicReader published(out);
  EXPECT_TRUE(published.until([&] { return published.payloads().size() == 1; })) << world.output();
  EXPECT_TRUE(eventually([&] { return world.query("SELECT count(*) FROM outbox WHERE shard = -1") == "2"; }))
      << world.output();
  EXPECT_TRUE(eventually([&] { return world.query("SELECT count(*) FROM outbox") == "2"; }));
  EXPECT_THAT(world.query("SELECT refused FROM outbox LIMIT 1"), HasSubstr("must be two one-dimensional lists"));
  EXPECT_THAT(world.output(), HasSubstr("is kept back: header_names"));
}

TEST(Outbox, sends_what_others_wrote_while_it_was_asleep_and_leaves_its_shards_when_it_stops) {
  TURNSTILE_NEEDS_SERVERS();
  World world(1);
  Process consumer = world.consumer(world.toml());
  ASSERT_TRUE(eventually([&] { return world.output().find("assigned 1 partitions") != std::string::npos; }));
  (void)world.query("INSERT INTO outbox (topic, record_payload) VALUES ('" + world.dead_topic() +
                    "', 'x') RETURNING 1");
  TopicReader reader(world.dead_topic());
  EXPECT_TRUE(reader.until([&] { return reader.payloads().contains("x"); })) << world.output();
  consumer.signal(SIGTERM);
  EXPECT_EQ(consumer.wait(20s), 0) << world.output();
  EXPECT_EQ(world.query("SELECT count(*) FROM outbox_relay WHERE owner IS NOT NULL"), "0") << "its shards are free";
}

}  // namespace
}  // namespace turnstile::test
