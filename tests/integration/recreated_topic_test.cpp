// Topics that are deleted and created again under a running consumer, and ends of a consumer that must not hang or
// crash, on the real Apache Kafka.

#include <gtest/gtest.h>
#include <librdkafka/rdkafka.h>

#include <atomic>
#include <mutex>
#include <set>

#include "tests/support/running.hpp"
#include "tests/support/world.hpp"
#include "turnstile/kafka/admin.hpp"
#include "turnstile/turnstile.hpp"

namespace turnstile::test {
namespace {

using namespace std::chrono_literals;

kafka::Settings kafka_settings() { return {{"bootstrap.servers", kafka_servers()}}; }

/// To the first `partitions` partitions in turn.
void publish_to(World& world, int partitions, int n, const std::string& prefix) {
  for (int i = 0; i < n; ++i) {
    OwnedMessage message;
    message.topic = world.topic();
    message.partition = i % partitions;
    message.payload = prefix + std::to_string(i);
    message.headers = {{"message-id", prefix + std::to_string(i)}};
    // A producer that has just learned that the topic is gone reports that once more.
    ASSERT_TRUE(eventually([&] {
      try {
        world.publish(message);
        return true;
      } catch (const BrokerError&) {
        return false;
      }
    }));
  }
}

/// The messages that ran, by payload.
class Ran {
 public:
  void note(const Message& message) {
    const std::lock_guard lock(mutex_);
    ran_.insert(std::string(message.text()));
  }
  [[nodiscard]] int with(const std::string& prefix) const {
    const std::lock_guard lock(mutex_);
    int count = 0;
    for (auto it = ran_.begin(); it != ran_.end(); it = ran_.upper_bound(*it)) count += it->starts_with(prefix) ? 1 : 0;
    return count;
  }
  [[nodiscard]] std::size_t runs() const {
    const std::lock_guard lock(mutex_);
    return ran_.size();
  }

 private:
  mutable std::mutex mutex_;
  std::multiset<std::string> ran_;
};

struct HandlerKind {
  const char* name;
  Pipeline (*over)(Pipeline);
};
void PrintTo(const HandlerKind& kind, std::ostream* out) { *out << kind.name; }

class RecreatedTopics : public ::testing::TestWithParam<HandlerKind> {};

TEST_P(RecreatedTopics, lose_no_record_under_a_running_consumer) {
  TURNSTILE_NEEDS_SERVERS();
  World world(1);
  publish_to(world, 1, 300, "old-");
  Ran ran;
  Running consumer(world.config(), [&](Consumer& app) {
    app.topic(world.topic(), GetParam().over(Pipeline([&](const Message& message, Context&) { ran.note(message); })));
  });
  ASSERT_TRUE(eventually([&] { return ran.with("old-") == 300 && world.caught_up(); })) << consumer.log_text();
  kafka::delete_topic(kafka_settings(), world.topic());
  kafka::create_topic(kafka_settings(), {world.topic(), 1, -1, {}});
  publish_to(world, 1, 100, "new-");
  EXPECT_TRUE(eventually([&] { return ran.with("new-") == 100 && world.caught_up(); }, 60s)) << consumer.log_text();
  // Without a store, the new records run again if they are read a second time, for a comparison.
  const std::size_t again = GetParam().name == std::string_view("none") ? 100 : 0;
  EXPECT_GE(ran.runs(), 400U) << consumer.log_text();
  EXPECT_LE(ran.runs(), 400U + again) << consumer.log_text();
  EXPECT_EQ(consumer.stop(), "") << consumer.log_text();
}

INSTANTIATE_TEST_SUITE_P(
    Each, RecreatedTopics,
    ::testing::Values(HandlerKind{"ids", [](Pipeline p) { return std::move(p) | transactional(); }},
                      HandlerKind{"offsets",
                                  [](Pipeline p) { return std::move(p) | transactional() | id_from("offset"); }},
                      HandlerKind{"none", [](Pipeline p) { return p; }}),
    [](const auto& c) { return std::string(c.param.name); });

/// The partitions are assigned anew while the topic does not exist, so that nobody gets one.
TEST(RecreatedTopic, is_read_after_a_rebalance_without_it) {
  TURNSTILE_NEEDS_SERVERS();
  World world(2);
  Ran ran;
  const auto set_up = [&](Consumer& app) {
    app.topic(world.topic(), Pipeline([&](const Message& message, Context&) { ran.note(message); }) | by_offset());
  };
  Running stays(world.config(), set_up);
  ASSERT_TRUE(stays.says("assigned 2 partitions"));
  Running leaves(world.config(), set_up);
  ASSERT_TRUE(stays.says("assigned 1 partitions") && leaves.says("assigned 1 partitions"));
  publish_to(world, 2, 300, "old-");
  ASSERT_TRUE(eventually([&] { return ran.with("old-") == 300 && world.caught_up(); })) << stays.log_text();
  kafka::delete_topic(kafka_settings(), world.topic());
  ASSERT_TRUE(stays.says("was deleted in Kafka")) << stays.log_text();
  EXPECT_EQ(leaves.stop(), "");
  ASSERT_TRUE(stays.says("revoked 1 partitions")) << stays.log_text();
  kafka::create_topic(kafka_settings(), {world.topic(), 2, -1, {}});
  publish_to(world, 2, 300, "new-");
  EXPECT_TRUE(eventually([&] { return ran.with("new-") == 300 && world.caught_up(); }, 60s)) << stays.log_text();
  EXPECT_EQ(ran.runs(), 600U) << stays.log_text();
  EXPECT_EQ(stays.stop(), "") << stays.log_text();
}

/// Only the group's offset shows that it was recreated: no record of the old topic is read again.
TEST(RecreatedTopic, of_a_new_group_loses_no_record_before_the_first_commit_is_due) {
  TURNSTILE_NEEDS_SERVERS();
  World world(1);
  Ran ran;
  Running consumer(world.config({}, "[consumer]\ncommit_interval = \"3s\"\n"), [&](Consumer& app) {
    app.topic(world.topic(), Pipeline([&](const Message& message, Context&) { ran.note(message); }));
  });
  publish_to(world, 1, 40, "old-");
  ASSERT_TRUE(eventually([&] { return ran.with("old-") == 40; })) << consumer.log_text();
  kafka::delete_topic(kafka_settings(), world.topic());
  kafka::create_topic(kafka_settings(), {world.topic(), 1, -1, {}});
  publish_to(world, 1, 120, "new-");
  EXPECT_TRUE(eventually([&] { return ran.with("new-") == 120; })) << consumer.log_text();
}

/// The same test on a build with the bug that these tests must find.
TEST(RecreatedTopic, is_lost_by_a_build_that_drops_what_was_taken_before) {
  TURNSTILE_NEEDS_SERVERS();
  World world(1);
  publish_to(world, 1, 30, "old-");
  Process consumer = world.consumer(world.toml(), {{"TURNSTILE_KNOWN_BAD", "taken_before"}});
  ASSERT_TRUE(eventually([&] { return world.effects().rows == 30 && world.caught_up(); })) << world.output();
  kafka::delete_topic(kafka_settings(), world.topic());
  kafka::create_topic(kafka_settings(), {world.topic(), 1, -1, {}});
  publish_to(world, 1, 50, "new-");
  ASSERT_TRUE(eventually([&] { return world.query("SELECT count(*) FROM effect WHERE id LIKE 'new-49'") == "1"; }, 60s))
      << world.output();
  EXPECT_LT(world.effects().distinct, 80) << "nothing is lost: the tests above prove nothing";
}

/// The topic is missing for so long that librdkafka gives its partitions up.
TEST(DeletedTopic, is_waited_for_and_the_consumer_ends_when_it_is_told_to) {
  TURNSTILE_NEEDS_SERVERS();
  World world(1);
  publish_to(world, 1, 30, "m");
  Process consumer = world.consumer(world.toml());
  ASSERT_TRUE(eventually([&] { return world.effects().rows == 30 && world.caught_up(); })) << world.output();
  kafka::delete_topic(kafka_settings(), world.topic());
  const auto says = [&](const std::string& text) { return world.output().find(text) != std::string::npos; };
  ASSERT_TRUE(eventually([&] { return says("topic " + world.topic() + " was deleted in Kafka"); }, 60s))
      << world.output();
  kafka::create_topic(kafka_settings(), {world.topic(), 1, -1, {}});
  publish_to(world, 1, 20, "n");
  EXPECT_TRUE(eventually([&] { return world.effects().rows == 50; }, 60s)) << world.output();
  ASSERT_TRUE(eventually([&] { return says("topic " + world.topic() + " exists again"); })) << world.output();
  ASSERT_TRUE(eventually([&] { return world.caught_up(); })) << world.output();
  EXPECT_EQ(world.effects().rows, 50);
  const auto times_deleted = [&] {
    const std::string all = world.output(), line = " was deleted in Kafka";
    int count = 0;
    for (auto at = all.find(line); at != std::string::npos; at = all.find(line, at + 1)) ++count;
    return count;
  };
  kafka::delete_topic(kafka_settings(), world.topic());
  ASSERT_TRUE(eventually([&] { return times_deleted() == 2; })) << world.output();
  consumer.signal(SIGTERM);
  EXPECT_EQ(consumer.wait(40s), 0) << world.output();
  EXPECT_TRUE(says("stopped")) << world.output();
}

TEST(FatalErrors, of_a_group_instance_id_that_two_processes_have_are_told_and_crash_nothing) {
  TURNSTILE_NEEDS_SERVERS();
  World world(1);
  world.publish(20);
  std::string toml = world.toml();
  toml.insert(toml.find("\"group.id\""), "\"group.instance.id\" = \"only-one\"\n");
  Process first = world.consumer(toml);
  ASSERT_TRUE(eventually([&] { return world.effects().distinct == 20; })) << world.output();
  Process second = world.consumer(toml);
  EXPECT_EQ(first.wait(60s), 1) << world.output();
  EXPECT_NE(world.output().find("the consumer ends: "), std::string::npos) << world.output();
  EXPECT_NE(world.output().find("Give each member its own"), std::string::npos) << world.output();
  second.signal(SIGTERM);
  EXPECT_EQ(second.wait(40s), 0) << world.output();
}

TEST(FatalErrors, of_an_offset_that_the_broker_does_not_have_are_told_and_crash_nothing) {
  TURNSTILE_NEEDS_SERVERS();
  World world(1);
  world.publish(20);
  const std::vector<ports::OffsetCommit> beyond{{{world.topic(), 0}, 1'000}};
  world.broker().open_consumer()->commit(beyond, true);
  ASSERT_EQ(world.committed(0), 1'000);
  std::string toml = world.toml();
  const std::string earliest = "\"auto.offset.reset\" = \"earliest\"";
  toml.replace(toml.find(earliest), earliest.size(), "\"auto.offset.reset\" = \"error\"");
  Process consumer = world.consumer(toml);
  EXPECT_EQ(consumer.wait(60s), 1) << world.output();
  EXPECT_NE(world.output().find("the consumer ends: "), std::string::npos) << world.output();
  EXPECT_NE(world.output().find("auto.offset.reset is error"), std::string::npos) << world.output();
}

/// Records of an aborted transaction, and the marker of its end, have offsets that no consumer ever gets.
TEST(Lag, becomes_zero_behind_an_aborted_transaction) {
  TURNSTILE_NEEDS_SERVERS();
  World world(1);
  publish_to(world, 1, 5, "m");
  std::array<char, 512> why{};
  rd_kafka_conf_t* conf = rd_kafka_conf_new();
  rd_kafka_conf_set(conf, "bootstrap.servers", kafka_servers().c_str(), why.data(), why.size());
  rd_kafka_conf_set(conf, "transactional.id", world.topic().c_str(), why.data(), why.size());
  const std::unique_ptr<rd_kafka_t, decltype(&rd_kafka_destroy)> producer(
      rd_kafka_new(RD_KAFKA_PRODUCER, conf, why.data(), why.size()), &rd_kafka_destroy);
  ASSERT_TRUE(producer) << why.data();
  const auto good = [](rd_kafka_error_t* error) {
    const std::unique_ptr<rd_kafka_error_t, decltype(&rd_kafka_error_destroy)> freed(error, &rd_kafka_error_destroy);
    return error == nullptr ? std::string() : rd_kafka_error_string(error);
  };
  ASSERT_EQ(good(rd_kafka_init_transactions(producer.get(), 30'000)), "");
  ASSERT_EQ(good(rd_kafka_begin_transaction(producer.get())), "");
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(rd_kafka_producev(producer.get(), RD_KAFKA_V_TOPIC(world.topic().c_str()), RD_KAFKA_V_PARTITION(0),
                                RD_KAFKA_V_VALUE(const_cast<char*>("x"), 1), RD_KAFKA_V_END),
              RD_KAFKA_RESP_ERR_NO_ERROR);
  }
  ASSERT_EQ(rd_kafka_flush(producer.get(), 30'000), RD_KAFKA_RESP_ERR_NO_ERROR);
  ASSERT_EQ(good(rd_kafka_abort_transaction(producer.get(), 30'000)), "");
  std::atomic<int> ran{0};
  Running consumer(world.config(), [&](Consumer& app) {
    app.topic(world.topic(), Pipeline([&](const Message&, Context&) { ++ran; }) | transactional());
  });
  EXPECT_TRUE(eventually([&] { return world.committed(0) == 9; })) << world.committed(0) << consumer.log_text();
  EXPECT_EQ(ran, 5);
}

/// A handler may run for longer than the group's session timeout, and for longer than a rebalance waits for it.
TEST(LongHandlers, run_once_in_mode_leased_over_a_rebalance) {
  TURNSTILE_NEEDS_SERVERS();
  World world(WorldOptions{.partitions = 2, .session_timeout_ms = 3'000, .handler_timeout = "12h"});
  std::atomic<bool> go_on{false};
  Ran ran;
  const auto handler = [&](const Message& message, Context&) {
    if (message.text() == "long") {
      EXPECT_TRUE(eventually([&] { return go_on.load(); }, 60s));
    }
    ran.note(message);
  };
  const auto set_up = [&](Consumer& app) { app.topic(world.topic(), Pipeline(handler) | leased(1s)); };
  const std::string quick = "lock_timeout = \"1s\"\n[consumer]\ndrain_timeout = \"200ms\"\n";
  Running first(world.config("order = \"none\"", quick), set_up);
  for (int partition = 0; partition < 2; ++partition) {
    OwnedMessage message;
    message.topic = world.topic();
    message.partition = partition;
    message.payload = "long";
    message.headers = {{"message-id", "long" + std::to_string(partition)}};
    world.publish(message);
  }
  ASSERT_TRUE(eventually([&] { return world.query("SELECT count(*) FROM claim") == "2"; })) << first.log_text();
  Running second(world.config("order = \"none\"", quick), set_up);
  ASSERT_TRUE(second.says("assigned 1 partitions")) << second.log_text();
  world.publish("after", "fine");
  EXPECT_TRUE(eventually([&] { return ran.with("fine") == 1; })) << "others go on beside them";
  // This takes longer than the session timeout and several leases. The test waits until the group has handled messages
  // meanwhile.
  for (int round = 0; round < 5; ++round) {
    world.publish("beside" + std::to_string(round), "beside");
    ASSERT_TRUE(eventually([&] { return world.query("SELECT count(*) FROM inbox") == std::to_string(round + 2); }));
  }
  EXPECT_EQ(ran.with("long"), 0);
  go_on = true;
  EXPECT_TRUE(eventually([&] { return ran.runs() >= 8U && world.caught_up(); }, 60s)) << second.log_text();
  EXPECT_EQ(first.stop(), "");
  EXPECT_EQ(second.stop(), "");
  EXPECT_EQ(ran.runs(), 8U) << "the long ones ran once\n" << first.log_text() << second.log_text();
}

}  // namespace
}  // namespace turnstile::test
