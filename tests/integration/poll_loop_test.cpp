// The decorators on a poll loop of the program's own over librdkafka's C API, on the real PostgreSQL and the real
// Apache Kafka.

#include <gtest/gtest.h>
#include <librdkafka/rdkafka.h>

#include <map>

#include "tests/support/delete_records.hpp"
#include "tests/support/tcp_proxy.hpp"
#include "tests/support/topic_reader.hpp"
#include "tests/support/world.hpp"
#include "turnstile/kafka/message.hpp"
#include "turnstile/turnstile.hpp"

namespace turnstile::test {
namespace {

using namespace std::chrono_literals;

/// A consumer of the program's own. It is assigned one partition, and reads from the beginning.
class RawConsumer {
 public:
  RawConsumer(const std::string& topic, std::int32_t partition) {
    char error[512];
    rd_kafka_conf_t* conf = rd_kafka_conf_new();
    for (const auto& [key, value] : std::map<std::string, std::string>{
             {"bootstrap.servers", kafka_servers()}, {"group.id", topic + "-raw"}, {"enable.auto.commit", "false"}}) {
      rd_kafka_conf_set(conf, key.c_str(), value.c_str(), error, sizeof error);
    }
    handle_ = rd_kafka_new(RD_KAFKA_CONSUMER, conf, error, sizeof error);
    rd_kafka_poll_set_consumer(handle_);
    rd_kafka_topic_partition_list_t* list = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(list, topic.c_str(), partition)->offset = 0;
    rd_kafka_assign(handle_, list);
    rd_kafka_topic_partition_list_destroy(list);
  }
  ~RawConsumer() {
    rd_kafka_consumer_close(handle_);
    rd_kafka_destroy(handle_);
  }
  RawConsumer(const RawConsumer&) = delete;
  RawConsumer& operator=(const RawConsumer&) = delete;

  /// Passes the next record to `use`. Returns false if no record came within 20 s.
  template <class Use>
  bool next(Use&& use) {
    return eventually(
        [&] {
          const std::unique_ptr<rd_kafka_message_t, void (*)(rd_kafka_message_t*)> record(
              rd_kafka_consumer_poll(handle_, 100), rd_kafka_message_destroy);
          if (!record || record->err != RD_KAFKA_RESP_ERR_NO_ERROR) return false;
          use(record.get());
          return true;
        },
        20s);
  }

 private:
  rd_kafka_t* handle_ = nullptr;
};

auto effect_in(const World& world) {
  return [schema = world.schema()](const Message& message, Context& context) {
    if (message.text() == "throw") throw std::runtime_error("told to throw");
    make_effect(schema, message, context);
  };
}

TEST(PollLoop, settles_each_message_once_and_says_what_became_of_it) {
  TURNSTILE_NEEDS_SERVERS();
  World world(1);
  for (int i = 0; i < 50; ++i) world.publish("m" + std::to_string(i % 40), "fine");
  world.publish("poison", "throw");
  PollLoop loop(world.config());
  loop.topic(world.topic(), effect_in(world) | transactional() | limit(1) | retry(exponential{1ms, 2}) | dead_letter());
  RawConsumer raw(world.topic(), 0);
  std::map<Settled, int> settled;
  for (int i = 0; i < 51; ++i) {
    ASSERT_TRUE(raw.next([&](const rd_kafka_message_t* record) {
      const Message message = kafka::view(record);
      EXPECT_EQ(message.native(), record);
      ++settled[loop.handle(message)];
    }));
  }
  EXPECT_EQ(settled[Settled::done], 40);
  EXPECT_EQ(settled[Settled::duplicate], 10);
  EXPECT_EQ(settled[Settled::dead_letter], 1);
  EXPECT_EQ(world.effects().rows, 40);
  EXPECT_EQ(world.query("SELECT reason || ' ' || attempts || ' ' || record_offset FROM dead"), "failed 2 50");
}

TEST(PollLoop, sends_what_its_handlers_publish_and_reply) {
  TURNSTILE_NEEDS_SERVERS();
  World world(1);
  const std::string out = world.add_topic("out"), replies = world.add_topic("replies");
  world.publish("a", "fine");
  PollLoop loop(world.config("reply_topics = \"" + replies + "\"\n"));
  const auto answering = [&](const Message&, Context& context) {
    OwnedMessage message;
    message.topic = out;
    message.payload = "made";
    context.publish(message);
    context.reply("said");
  };
  loop.topic(world.topic(), answering | transactional());
  RawConsumer raw(world.topic(), 0);
  EXPECT_TRUE(raw.next([&](const auto* record) { EXPECT_EQ(loop.handle(kafka::view(record)), Settled::done); }));
  TopicReader made(out), said(replies);
  EXPECT_TRUE(made.until([&] { return made.payloads().contains("made"); }));
  EXPECT_TRUE(said.until([&] { return said.payloads().contains("said"); }));
}

TEST(PollLoop, refuses_to_go_on_without_the_database) {
  TURNSTILE_NEEDS_SERVERS();
  World world(1);
  world.publish("a", "fine");
  PollLoop loop(world.config());
  loop.topic(world.topic(), [](const Message&, Context&) {} | leased(5s) | on_store_down(StoreDownPolicy::run));
  RawConsumer raw(world.topic(), 0);
  EXPECT_TRUE(raw.next([&](const auto* record) {
    try {
      loop.handle(kafka::view(record));
      ADD_FAILURE() << "a setting that does nothing was taken";
    } catch (const ConfigError& e) {
      EXPECT_NE(std::string(e.what()).find("a PollLoop throws StoreUnavailable to its caller instead"),
                std::string::npos)
          << e.what();
    }
  }));
}

TEST(PollLoop, raises_duplicates_where_it_is_told_to) {
  TURNSTILE_NEEDS_SERVERS();
  World world(1);
  for (int i = 0; i < 2; ++i) world.publish("same", "fine");
  PollLoop loop(world.config());
  loop.topic(world.topic(), effect_in(world) | transactional() | on_duplicate(DuplicatePolicy::raise));
  RawConsumer raw(world.topic(), 0);
  EXPECT_TRUE(
      raw.next([&](const rd_kafka_message_t* record) { EXPECT_EQ(loop.handle(kafka::view(record)), Settled::done); }));
  EXPECT_TRUE(raw.next([&](const rd_kafka_message_t* record) {
    try {
      loop.handle(kafka::view(record));
      ADD_FAILURE() << "no Duplicate";
    } catch (const Duplicate& e) {
      EXPECT_EQ(std::string(e.what()),
                world.topic() + "[0]@1: its id was seen before by handler '" + world.topic() + "'");
    }
  }));
  EXPECT_EQ(world.effects().rows, 1);
}

TEST(PollLoop, is_fenced_by_the_next_owner_and_may_claim_again) {
  TURNSTILE_NEEDS_SERVERS();
  World world(1);
  for (int i = 0; i < 3; ++i) world.publish("m" + std::to_string(i), "fine");
  PollLoop old_owner(world.config());
  PollLoop new_owner(world.config());
  for (PollLoop* loop : {&old_owner, &new_owner}) loop->topic(world.topic(), effect_in(world) | transactional());
  RawConsumer raw(world.topic(), 0);
  EXPECT_TRUE(raw.next([&](const auto* record) { EXPECT_EQ(old_owner.handle(kafka::view(record)), Settled::done); }));
  EXPECT_TRUE(raw.next([&](const auto* record) { EXPECT_EQ(new_owner.handle(kafka::view(record)), Settled::done); }));
  EXPECT_TRUE(raw.next([&](const auto* record) {
    EXPECT_THROW(old_owner.handle(kafka::view(record)), Fenced);
    EXPECT_EQ(world.effects().rows, 2) << "a fenced owner makes no effect";
    EXPECT_EQ(old_owner.handle(kafka::view(record)), Settled::done)
        << "it was given the partition again: claims it anew";
    EXPECT_THROW(new_owner.handle(kafka::view(record)), Fenced);
  }));
  EXPECT_EQ(world.effects().rows, 3);
}

TEST(PollLoop, says_that_nothing_was_decided_while_its_last_owner_has_a_transaction_open) {
  TURNSTILE_NEEDS_SERVERS();
  World world(1);
  world.publish("one", "fine");
  world.publish("two", "fine");
  RawConsumer raw(world.topic(), 0);
  PollLoop first(world.config()), next(world.config("", "lock_timeout = \"300ms\"\n"));
  for (PollLoop* loop : {&first, &next}) loop->topic(world.topic(), effect_in(world) | transactional());
  EXPECT_TRUE(raw.next([&](const auto* record) { EXPECT_EQ(first.handle(kafka::view(record)), Settled::done); }));
  Sql last_owner(*postgres_url());
  last_owner.exec("BEGIN; SELECT * FROM " + world.schema() + ".fence FOR SHARE");
  EXPECT_TRUE(raw.next([&](const auto* record) {
    EXPECT_THROW(next.handle(kafka::view(record)), StoreUnavailable);
    last_owner.exec("ROLLBACK");
    EXPECT_EQ(next.handle(kafka::view(record)), Settled::done);
  }));
}

TEST(PollLoop, says_that_nothing_was_decided_while_the_database_is_away) {
  TURNSTILE_NEEDS_SERVERS();
  Sql sql(*postgres_url());
  TcpProxy proxy = proxy_to(sql);
  World world(WorldOptions{.partitions = 1, .postgres_url = url_through(*postgres_url(), proxy.port())});
  world.publish("one", "fine");
  world.publish("two", "fine");
  PollLoop loop(world.config());
  loop.topic(world.topic(), effect_in(world) | transactional());
  RawConsumer raw(world.topic(), 0);
  EXPECT_TRUE(raw.next([&](const auto* record) { EXPECT_EQ(loop.handle(kafka::view(record)), Settled::done); }));
  EXPECT_TRUE(raw.next([&](const auto* record) {
    proxy.cut(true);
    try {
      loop.handle(kafka::view(record));
      ADD_FAILURE() << "no StoreUnavailable";
    } catch (const StoreUnavailable& e) {
      EXPECT_EQ(std::string(e.what()).find(world.topic() + "[0]@1: "), 0U) << e.what();
    }
    proxy.cut(false);
    EXPECT_EQ(loop.handle(kafka::view(record)), Settled::done);
  }));
  EXPECT_EQ(world.effects().rows, 2);
}

/// The first process ends without releasing the partition, and Kafka deletes records above the watermark that it has
/// written.
TEST(PollLoop, sends_its_caller_no_further_back_than_the_log_begins) {
  TURNSTILE_NEEDS_SERVERS();
  World world(1);
  for (int i = 0; i < 9; ++i) world.publish("m" + std::to_string(i), "fine");
  const auto pipeline = [&] { return effect_in(world) | transactional(); };
  PollLoop killed(world.config()), loop(world.config());  // the first one stays alive, so that nothing is released
  killed.topic(world.topic(), pipeline());
  loop.topic(world.topic(), pipeline());
  RawConsumer raw(world.topic(), 0);
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(raw.next([&](const auto* record) { killed.handle(kafka::view(record)); }));
  ASSERT_TRUE(raw.next([&](const auto* record) {
    delete_before(world.topic(), 0, 3);
    try {
      loop.handle(kafka::view(record));
      ADD_FAILURE() << "no ReadAgain";
    } catch (const ReadAgain& again) {
      EXPECT_EQ(again.from.offset, 3);
    }
    loop.revoked({world.topic(), 0});
    loop.revoked({world.topic(), 0});  // the rebalance
    delete_before(world.topic(), 0, 5);
    EXPECT_EQ(loop.handle(kafka::view(record)), Settled::done);
  }));
}

}  // namespace
}  // namespace turnstile::test
