// What becomes of messages that fail, on the real PostgreSQL and the real Apache Kafka.

#include <gtest/gtest.h>
#include <librdkafka/rdkafka.h>

#include <map>
#include <mutex>

#include "tests/support/running.hpp"
#include "tests/support/topic_reader.hpp"
#include "tests/support/world.hpp"
#include "turnstile/turnstile.hpp"

namespace turnstile::test {
namespace {

using namespace std::chrono_literals;

std::string dead_rows(const World& world) { return world.query("SELECT count(*) FROM dead"); }

bool dead_row(const World& world) {
  return eventually([&] { return dead_rows(world) == "1"; });
}

/// The first record of the dead letter topic.
OwnedMessage dead_letter_of(const World& world) {
  TopicReader letters(world.dead_topic());
  EXPECT_TRUE(letters.until([&] { return !letters.read.empty(); })) << "no record in the dead letter topic";
  return letters.read.empty() ? OwnedMessage{} : letters.read.front();
}

std::map<std::string, std::string> headers_of(const OwnedMessage& message) {
  std::map<std::string, std::string> all;
  for (const auto& header : message.headers) all[header.name] = header.value.value_or("(none)");
  return all;
}

/// A handler that makes the effect, or fails as the payload requests.
auto effect_in(const World& world) {
  return [schema = world.schema()](const Message& message, Context& context) {
    if (message.text() == "throw") throw std::runtime_error("told to throw");
    if (message.text() == "throw-int") throw 42;
    if (message.text() == "throw-first" && context.attempt() == 1) throw std::runtime_error("not yet");
    if (message.text() == "bad-defer") context.defer("SELECT 1 / $1::int", 0);
    make_effect(schema, message, context);
  };
}

TEST(DeadLetter, has_headers_that_say_why_and_a_row) {
  TURNSTILE_NEEDS_SERVERS();
  World world(1);
  OwnedMessage message;
  message.topic = world.topic();
  message.key = "a key";
  message.payload = "throw";
  message.headers = {{"message-id", "one"}, {"own", "header"}, {"turnstile-error", "from an earlier death"}};
  const auto sent = world.publish(message);
  Running consumer(world.config(), [&](Consumer& app) {
    app.topic(world.topic(),
              effect_in(world) | transactional() | handler_id("charge") | retry(exponential{1ms, 3}) | dead_letter());
  });
  ASSERT_TRUE(dead_row(world)) << consumer.log_text();
  const auto letter = dead_letter_of(world);
  const auto headers = headers_of(letter);
  EXPECT_EQ(letter.payload, "throw");
  EXPECT_EQ(letter.key, "a key");
  EXPECT_EQ(letter.headers.size(), 11U) << "its own two, and nine that say why";
  EXPECT_EQ(headers.at("own"), "header");
  EXPECT_EQ(headers.at("message-id"), "one");
  EXPECT_EQ(headers.at("turnstile-original-topic"), world.topic());
  EXPECT_EQ(headers.at("turnstile-original-partition"), "0");
  EXPECT_EQ(headers.at("turnstile-original-offset"), std::to_string(sent.offset));
  EXPECT_GT(std::stoll(headers.at("turnstile-original-timestamp")), 1'600'000'000'000);
  EXPECT_EQ(headers.at("turnstile-handler"), "charge");
  EXPECT_EQ(headers.at("turnstile-reason"), "failed");
  EXPECT_EQ(headers.at("turnstile-error"), "told to throw");
  EXPECT_EQ(headers.at("turnstile-attempts"), "3");
  EXPECT_EQ(
      world.query(
          "SELECT reason || ' ' || attempts || ' ' || error || ' ' || dead_topic || ' ' || dead_offset FROM dead"),
      "failed 3 told to throw " + world.dead_topic() + " 0");
  EXPECT_TRUE(eventually([&] { return world.caught_up(); })) << "a dead message is settled";
  EXPECT_EQ(consumer.stop(), "");
}

TEST(DeadLetter, takes_the_attempts_that_a_message_needs_and_no_more) {
  TURNSTILE_NEEDS_SERVERS();
  World world(1);
  world.publish("one", "throw-first");
  Running consumer(world.config(), [&](Consumer& app) {
    app.topic(world.topic(), effect_in(world) | transactional() | retry(exponential{1ms, 3}) | dead_letter());
  });
  ASSERT_TRUE(eventually([&] { return world.effects().rows == 1; })) << consumer.log_text();
  EXPECT_EQ(world.query("SELECT attempt FROM effect"), "2");
  EXPECT_EQ(consumer.lines_with("attempt 1 failed; retrying in"), 1) << consumer.log_text();
  EXPECT_EQ(dead_rows(world), "0");
}

TEST(DeadLetter, survives_what_is_no_std_exception) {
  TURNSTILE_NEEDS_SERVERS();
  World world(1);
  world.publish("one", "throw-int");
  Running consumer(world.config(), [&](Consumer& app) {
    app.topic(world.topic(), effect_in(world) | transactional() | retry(exponential{1ms, 1}) | dead_letter());
  });
  ASSERT_TRUE(dead_row(world)) << consumer.log_text();
  EXPECT_EQ(world.query("SELECT error FROM dead"),
            "the handler threw something that is no std::exception; throw one, so that its message can be kept");
}

TEST(DeadLetter, runs_a_null_payload_as_any_other) {
  TURNSTILE_NEEDS_SERVERS();
  World world(1);
  std::atomic<int> nulls{0};
  Running consumer(world.config(), [&](Consumer& app) {
    app.topic(world.topic(),
              [&](const Message& message, Context& context) {
                if (!message.payload()) ++nulls;
                make_effect(world.schema(), message, context);
              } | transactional() |
                  retry(exponential{1ms, 1}) | dead_letter());
  });
  world.publish({{"message-id", "tombstone"}}, std::nullopt);
  world.publish({{"message-id", "empty"}}, "");
  ASSERT_TRUE(eventually([&] { return world.effects().rows == 2; })) << consumer.log_text();
  EXPECT_EQ(nulls, 1) << "an empty payload is not a null one";
  EXPECT_EQ(dead_rows(world), "0");
}

TEST(DeadLetter, names_the_message_whose_deferred_statement_fails) {
  TURNSTILE_NEEDS_SERVERS();
  World world(1);
  for (int i = 0; i < 20; ++i) world.publish("m" + std::to_string(i), i == 13 ? "bad-defer" : "defer");
  Running consumer(world.config(), [&](Consumer& app) {
    app.topic(world.topic(), effect_in(world) | transactional() | retry(exponential{1ms, 1}) | dead_letter());
  });
  ASSERT_TRUE(eventually([&] { return world.effects().distinct == 19 && dead_rows(world) == "1"; }))
      << consumer.log_text();
  EXPECT_EQ(world.effects().rows, 19);
  EXPECT_EQ(world.query("SELECT error FROM dead"), "division by zero (SQLSTATE 22012)");
  EXPECT_EQ(world.query("SELECT record_offset FROM dead"), "13") << "the one that queued it, not a neighbour";
}

TEST(DeadLetter, does_not_run_a_handler_again_for_a_neighbour_in_batches_of_one) {
  TURNSTILE_NEEDS_SERVERS();
  World world(1);
  for (int i = 0; i < 40; ++i) world.publish("m" + std::to_string(i), i % 4 == 3 ? "throw" : "fine");
  std::mutex mutex;
  std::map<Offset, int> runs;
  Running consumer(world.config("batch = 1"), [&](Consumer& app) {
    app.topic(world.topic(),
              [&](const Message& message, Context& context) {
                {
                  const std::lock_guard lock(mutex);
                  ++runs[message.offset()];
                }
                effect_in(world)(message, context);
              } | transactional() |
                  retry(exponential{1ms, 2}) | dead_letter());
  });
  ASSERT_TRUE(eventually([&] { return world.caught_up(); })) << consumer.log_text();
  EXPECT_EQ(consumer.stop(), "");
  EXPECT_EQ(world.effects().rows, 30);
  EXPECT_EQ(dead_rows(world), "10");
  for (const auto& [offset, count] : runs) EXPECT_EQ(count, offset % 4 == 3 ? 2 : 1) << "offset " << offset;
}

TEST(DeadLetter, takes_the_one_message_that_a_set_based_handler_cannot_insert) {
  TURNSTILE_NEEDS_SERVERS();
  World world(1);
  for (int i = 0; i < 100; ++i) world.publish("m" + std::to_string(i % 90), i == 41 ? "no number" : std::to_string(i));
  const std::string sql = "INSERT INTO " + world.schema() + ".effect (id, attempt) SELECT unnest($1), unnest($1)::int";
  Running consumer(world.config(), [&](Consumer& app) {
    app.topic(world.topic(),
              [&](std::span<const Message> messages, Context& context) {
                std::vector<std::string_view> numbers;
                for (const auto& message : messages) numbers.push_back(message.text());
                context.tx().exec(sql, numbers);
              } | transactional() |
                  retry(exponential{1ms, 2}) | dead_letter());
  });
  ASSERT_TRUE(eventually([&] { return world.caught_up(); })) << consumer.log_text();
  EXPECT_EQ(world.effects().rows, 89) << consumer.log_text();
  EXPECT_EQ(world.effects().distinct, 89);
  EXPECT_EQ(world.query("SELECT count(*) || ' ' || min(record_offset) || ' ' || min(attempts) FROM dead"), "1 41 2");
  // The primary message of the statement's error names the value, as it does for any mistake of a handler.
  EXPECT_NE(world.query("SELECT error FROM dead").find("invalid input syntax for type integer"), std::string::npos);
}

TEST(DeadLetter, takes_duplicates_where_they_are_to_be_raised) {
  TURNSTILE_NEEDS_SERVERS();
  World world(1);
  for (int i = 0; i < 2; ++i) world.publish("same", "fine");
  Running consumer(world.config("duplicates = \"raise\""), [&](Consumer& app) {
    app.topic(world.topic(), effect_in(world) | transactional() | dead_letter());
  });
  ASSERT_TRUE(dead_row(world)) << consumer.log_text();
  EXPECT_EQ(world.query("SELECT reason || ' ' || record_offset FROM dead"), "duplicate 1");
  EXPECT_EQ(world.effects().rows, 1);
  EXPECT_EQ(headers_of(dead_letter_of(world)).at("turnstile-reason"), "duplicate");
}

TEST(DeadLetter, parks_an_id_that_comes_with_another_payload) {
  TURNSTILE_NEEDS_SERVERS();
  World world(1);
  world.publish("same", "first body");
  world.publish("same", "first body");
  world.publish("same", "second body");
  Running consumer(world.config("fingerprint = true"), [&](Consumer& app) {
    // Without a dead letter topic, the message is parked in the database only.
    app.topic(world.topic(), effect_in(world) | transactional());
  });
  ASSERT_TRUE(dead_row(world)) << consumer.log_text();
  EXPECT_EQ(world.query("SELECT reason || ' ' || record_offset || ' ' || error FROM dead"),
            "mismatch 2 the id was seen before with another payload");
  EXPECT_EQ(world.query("SELECT dead_topic FROM dead"), "");
  EXPECT_EQ(world.effects().rows, 1);
  EXPECT_TRUE(eventually([&] { return world.caught_up(); }));
}

/// Changes one setting of a topic, as kafka-configs.sh would.
void alter_topic(const std::string& topic, const char* name, const char* value) {
  char text[512];
  rd_kafka_conf_t* conf = rd_kafka_conf_new();
  rd_kafka_conf_set(conf, "bootstrap.servers", kafka_servers().c_str(), text, sizeof text);
  const std::unique_ptr<rd_kafka_t, void (*)(rd_kafka_t*)> client(
      rd_kafka_new(RD_KAFKA_PRODUCER, conf, text, sizeof text), rd_kafka_destroy);
  const std::unique_ptr<rd_kafka_queue_t, void (*)(rd_kafka_queue_t*)> queue(rd_kafka_queue_new(client.get()),
                                                                             rd_kafka_queue_destroy);
  rd_kafka_ConfigResource_t* resource = rd_kafka_ConfigResource_new(RD_KAFKA_RESOURCE_TOPIC, topic.c_str());
  rd_kafka_ConfigResource_set_config(resource, name, value);
  rd_kafka_AlterConfigs(client.get(), &resource, 1, nullptr, queue.get());
  rd_kafka_ConfigResource_destroy(resource);
  rd_kafka_event_t* event = rd_kafka_queue_poll(queue.get(), 10'000);
  ASSERT_NE(event, nullptr);
  EXPECT_EQ(rd_kafka_event_error(event), RD_KAFKA_RESP_ERR_NO_ERROR) << rd_kafka_event_error_string(event);
  rd_kafka_event_destroy(event);
}

TEST(DeadLetter, stops_the_partition_while_its_topic_refuses_and_loses_nothing) {
  TURNSTILE_NEEDS_SERVERS();
  World world(WorldOptions{.partitions = 1, .dead_topic_settings = {{"max.message.bytes", "100"}}});
  std::atomic<int> poison_runs{0};
  world.publish("before", "fine");
  world.publish("poison", "throw");
  world.publish("behind", "fine");
  Running consumer(world.config(), [&](Consumer& app) {
    app.topic(world.topic(),
              [&](const Message& message, Context& context) {
                if (message.text() == "throw") ++poison_runs;
                effect_in(world)(message, context);
              } | transactional() |
                  retry(exponential{1ms, 2}) | dead_letter());
  });
  ASSERT_TRUE(consumer.says("stopped: the message is dead (failed: told to throw) and its dead letter was refused"))
      << consumer.log_text();
  const std::string log = consumer.log_text();
  EXPECT_NE(log.find("the partition continues once the dead letter is accepted"), std::string::npos);
  EXPECT_NE(log.find(world.dead_topic()), std::string::npos) << "says which topic: " << log;
  EXPECT_NE(log.find("max.message.bytes"), std::string::npos) << "says what to do: " << log;
  EXPECT_NE(log.find("partition=0 offset=1"), std::string::npos) << "says which message: " << log;
  EXPECT_EQ(world.effects().rows, 1) << "nothing behind it may pass";
  EXPECT_EQ(dead_rows(world), "0");
  EXPECT_FALSE(world.caught_up());
  const int runs = poison_runs;

  alter_topic(world.dead_topic(), "max.message.bytes", "1000000");
  ASSERT_TRUE(eventually([&] { return world.effects().rows == 2 && dead_rows(world) == "1"; })) << consumer.log_text();
  EXPECT_TRUE(eventually([&] { return world.caught_up(); }));
  EXPECT_EQ(poison_runs, runs) << "waiting for the dead letter topic is no reason to run the handler again";
  EXPECT_EQ(consumer.lines_with("stopped: the message is dead"), 1) << consumer.log_text();
  EXPECT_EQ(headers_of(dead_letter_of(world)).at("turnstile-attempts"), "2");
}

}  // namespace
}  // namespace turnstile::test
