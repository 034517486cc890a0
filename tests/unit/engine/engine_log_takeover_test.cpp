// A consumer that takes over a partition of a topic that was recreated, from a member that had not found the new topic.

#include "tests/unit/engine/engine_log_changes_fixture.hpp"
#include "turnstile/lease_clock.hpp"

namespace turnstile {
namespace {

using namespace test;

/// A consumer shares a topic with two partitions with a member that does nothing.
class TakenOver : public EngineLogs {
 protected:
  void share_topic() {
    topic("t", 2);
    auto earlier = consumer("t", noting(by_place), config());
    thread = start(*earlier);
    fill([this](const OwnedMessage& message) { broker->produce(message); }, "old-");
    ASSERT_TRUE(eventually([&] { return ran_all("old-", 40) && all_committed("t", 2); })) << log_text();
    earlier->stop();
    thread.join();
    owner = broker->open_consumer();
    owner->subscribe({"t"}, idle);
    owner->poll(10ms);
    app = consumer("t", noting(by_place), config());
    thread = start(*app);
    ASSERT_TRUE(while_polling([&] { return log_text().find("assigned 1 partitions") != std::string::npos; }));
  }
  template <class Append>
  static void fill(const Append& append, const std::string& prefix, int n = 40) {
    for (int i = 0; i < n; ++i) {
      OwnedMessage message = message_of("t", prefix + std::to_string(i));
      message.partition = i % 2;
      append(message);
    }
  }
  bool while_polling(const std::function<bool()>& what) {
    return eventually([&] {
      owner->poll(1ms);
      return what();
    });
  }
  void expect_all_read(int n = 40) {
    EXPECT_TRUE(eventually([&] { return ran_all("another-", n) && all_committed("t", 2); })) << log_text();
    EXPECT_EQ(ran().size(), 40U + static_cast<std::size_t>(n)) << "nothing runs twice";
  }
  void TearDown() override {
    if (app) app->stop();
    if (thread.joinable()) thread.join();
  }
  static Pipeline by_place(Pipeline p) { return std::move(p) | by_offset(); }
  struct Idle final : ports::AssignmentListener {
    std::size_t assigned = 0;
    std::vector<TopicPartitionOffset> on_assigned(std::span<const TopicPartition> partitions) override {
      assigned += partitions.size();
      return {};
    }
    void on_revoked(std::span<const TopicPartition>, bool) override {}
  } idle;
  std::unique_ptr<ports::BrokerConsumer> owner;
  std::unique_ptr<Consumer> app;
  std::thread thread;
};

/// The owner of the other partition leaves before it has found the new topic. This consumer never had that partition.
TEST_F(TakenOver, partitions_of_a_recreated_topic_are_read_from_their_beginning) {
  ASSERT_NO_FATAL_FAILURE(share_topic());
  broker->delete_topic("t");
  ASSERT_TRUE(while_polling([&] { return log_text().find("topic t was deleted in Kafka") != std::string::npos; }));
  topic("t", 2);
  fill([this](const OwnedMessage& message) { broker->produce(message); }, "another-");
  ASSERT_TRUE(while_polling([&] { return ran().size() == 60; })) << ran().size() << log_text();
  owner->close();
  expect_all_read();
}

/// The partition that shows it is the last to be claimed.
TEST_F(TakenOver, partitions_are_read_from_their_beginning_if_a_later_one_shows_that_the_topic_was_recreated) {
  ASSERT_NO_FATAL_FAILURE(share_topic());
  broker->evict(2);
  broker->replace_topic("t", [](const auto& append) { fill(append, "another-"); });
  owner->close();
  expect_all_read();
}

/// Kafka does not answer once, before the claims.
TEST_F(TakenOver, no_partition_is_begun_before_kafka_has_told_whether_the_topic_was_recreated) {
  ASSERT_NO_FATAL_FAILURE(share_topic());
  broker->evict(2);
  broker->replace_topic("t", [](const auto& append) { fill(append, "another-", 400); });
  broker->refuse_next_lookups(1);
  owner->close();
  expect_all_read(400);
}

/// Kafka keeps the offsets of a group that has members. So this one does not forget that there was one, although it has
/// no partition for longer than Kafka would keep them without members.
TEST_F(TakenOver, a_member_without_partitions_for_a_day_still_knows_that_the_topic_is_another_one) {
  topic("t", 1);
  owner = broker->open_consumer();
  app = consumer("t", noting(by_place), config());
  thread = start(*app);
  produce(40, "old-");
  ASSERT_TRUE(eventually([&] { return ran_all("old-", 40) && all_committed("t", 1); })) << log_text();
  owner->subscribe({"t"}, idle);
  ASSERT_TRUE(while_polling([&] { return idle.assigned == 1; })) << log_text();
  for (int i = 0; i < 2; ++i) {
    const auto before = broker->lookups();
    LeaseClock::suspend(std::chrono::hours(7));
    ASSERT_TRUE(while_polling([&] { return broker->lookups() > before; })) << "it does not look";
  }
  replace(40);
  owner->close();
  EXPECT_TRUE(eventually([&] { return ran_all("another-", 40) && all_committed("t", 1); })) << log_text();
  EXPECT_EQ(ran().size(), 80U) << "nothing runs twice";
}

/// It was cut off from Kafka for so long that its offset may have expired. Ids tell which messages have taken effect.
TEST_F(TakenOver, a_topic_that_was_recreated_while_kafka_was_away_for_a_day_is_read_from_its_beginning) {
  topic("t", 1);
  app = consumer("t", noting([](Pipeline p) { return std::move(p) | transactional(); }), config());
  thread = start(*app);
  produce(40, "old-");
  ASSERT_TRUE(eventually([&] { return ran_all("old-", 40) && all_committed("t", 1); })) << log_text();
  broker->refuse_lookups(true);
  LeaseClock::suspend(std::chrono::hours(13));
  replace(60);
  broker->refuse_lookups(false);
  EXPECT_TRUE(eventually([&] { return ran_all("another-", 60) && all_committed("t", 1); })) << log_text();
  EXPECT_EQ(ran().size(), 100U) << "nothing runs twice";
}

}  // namespace
}  // namespace turnstile
