// A consumer that takes over a partition of a topic that was recreated, from a member that had not found the new topic.

#include <set>

#include "tests/unit/engine/engine_log_changes_fixture.hpp"
#include "turnstile/lease_clock.hpp"

namespace turnstile {
namespace {

using namespace test;
using ::testing::HasSubstr;
using ::testing::Not;

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

/// A topic is recreated with fewer partitions. If the others are added later, their new owner may know nothing of the old
/// topic: the members that had read it must have recorded that.
class MissingPartition : public EngineLogs {
 protected:
  /// This consumer reads 20 records of each partition.
  void read_both() {
    topic("t", 2);
    app = consumer("t", noting(by_place), config());
    thread = start(*app);
    fill(0, 20, "old-0-");
    fill(1, 20, "old-1-");
    ASSERT_TRUE(eventually([&] { return ran().size() == 40 && all_committed("t", 2); })) << log_text();
  }
  /// The consumer releases the second partition to a member that reads nothing, and claims nothing in the database.
  void give_away() {
    member = broker->open_consumer();
    member->subscribe({"t"}, idle);
    ASSERT_TRUE(eventually([&] {
      member->poll(1ms);
      return idle.owned.contains({"t", 1}) && log_text().find("assigned 1 partitions") != std::string::npos;
    })) << log_text();
  }
  /// Waits until the consumer has asked for the group's offsets at its interval.
  void look() {
    for (int i = 0; i < 2; ++i) {
      const auto before = broker->lookups();
      LeaseClock::suspend(10s);
      ASSERT_TRUE(eventually([&] { return broker->lookups() > before; })) << log_text();
    }
  }
  void delete_topic() {
    broker->delete_topic("t");
    ASSERT_TRUE(eventually([&] { return log_text().find("topic t was deleted in Kafka") != std::string::npos; }));
  }
  /// Without the second partition.
  void recreate(int n = 10) {
    topic("t", 1);
    fill(0, n, "new-0-");
    ASSERT_TRUE(eventually([&] { return ran_all("new-0-", n) && all_committed("t", 1); })) << log_text();
  }
  void stop() {
    if (app) app->stop();
    if (thread.joinable()) thread.join();
  }
  void TearDown() override { stop(); }
  void fill(int partition, int n, const std::string& prefix) {
    for (int i = 0; i < n; ++i) {
      OwnedMessage message = message_of("t", prefix + std::to_string(i));
      message.partition = partition;
      broker->produce(message);
    }
  }
  /// What the next owner finds in the database.
  ports::PartitionClaim claim(int partition) {
    const TopicPartition at{"t", partition};
    return inbox->partitions().claim_partitions("turnstile", {&at, 1}, 1s).front();
  }
  /// The next owner of the second partition goes on where the old one ended.
  void expect_old_log() {
    EXPECT_EQ(claim(1).incarnation, 0);
    EXPECT_EQ(claim(1).highest_progress(), 20);
  }
  /// The next owner of the second partition begins a new one.
  void expect_new_log() {
    EXPECT_EQ(claim(1).incarnation, 1);
    EXPECT_EQ(claim(1).watermark, 0);
  }
  static Pipeline by_place(Pipeline p) { return std::move(p) | by_offset(); }
  /// A member that reads nothing, and claims nothing in the database.
  struct Idle final : ports::AssignmentListener {
    std::set<TopicPartition> owned;
    std::vector<TopicPartitionOffset> on_assigned(std::span<const TopicPartition> partitions) override {
      owned.insert(partitions.begin(), partitions.end());
      return {};
    }
    void on_revoked(std::span<const TopicPartition> partitions, bool) override {
      for (const auto& at : partitions) owned.erase(at);
    }
  } idle;
  std::unique_ptr<ports::BrokerConsumer> member;
  std::unique_ptr<Consumer> app;
  std::thread thread;
};

TEST_F(MissingPartition, is_read_from_its_beginning_by_a_process_that_knows_nothing_of_the_old_topic) {
  ASSERT_NO_FATAL_FAILURE(read_both());
  ASSERT_NO_FATAL_FAILURE(give_away());
  ASSERT_NO_FATAL_FAILURE(delete_topic());
  ASSERT_NO_FATAL_FAILURE(recreate());
  stop();
  EXPECT_THAT(log_text(), HasSubstr("the topic was recreated without this partition"));
  // The broker in memory adds no partitions to a topic. To a process that starts later, this is the same.
  member->close();
  broker->delete_topic("t");
  topic("t", 2);
  fill(0, 10, "new-0-");
  fill(1, 60, "new-1-");
  app = consumer("t", noting(by_place), config());
  thread = start(*app);
  EXPECT_TRUE(eventually([&] { return ran_all("new-1-", 60); })) << ran().size() << log_text();
  EXPECT_EQ(ran().size(), 110U) << "nothing runs twice";
  EXPECT_THAT(log_text(), Not(HasSubstr("settled the partition up to 0"))) << "there is nothing to warn of";
}

/// The owner ends before Kafka's consumer has lost the partition.
TEST_F(MissingPartition, is_recorded_by_a_process_that_ends_while_it_still_owns_it) {
  ASSERT_NO_FATAL_FAILURE(read_both());
  ASSERT_NO_FATAL_FAILURE(delete_topic());
  ASSERT_NO_FATAL_FAILURE(recreate());
  stop();
  EXPECT_THAT(log_text(), HasSubstr("the topic was recreated without this partition"));
  EXPECT_THAT(log_text(), Not(HasSubstr("this process could not record it")));
  expect_new_log();
}

TEST_F(MissingPartition, is_recorded_by_a_process_that_gets_no_partition_of_the_new_topic) {
  const auto owner = broker->open_consumer();  // the first member gets the only partition
  ASSERT_NO_FATAL_FAILURE(read_both());
  ASSERT_NO_FATAL_FAILURE(delete_topic());
  owner->subscribe({"t"}, idle);
  topic("t", 1);
  ASSERT_TRUE(eventually([&] {
    owner->poll(1ms);
    return idle.owned.size() == 1;
  })) << log_text();
  LeaseClock::suspend(10s);  // it looks at intervals
  EXPECT_TRUE(eventually([&] {
    owner->poll(1ms);
    return log_text().find("the topic was recreated without this partition") != std::string::npos;
  })) << log_text();
  expect_new_log();
}

/// Members may not have learned of the deletion yet, and the new topic may have the partition: its owner then begins it.
TEST_F(MissingPartition, is_not_recorded_while_there_is_no_topic) {
  ASSERT_NO_FATAL_FAILURE(read_both());
  ASSERT_NO_FATAL_FAILURE(give_away());
  ASSERT_NO_FATAL_FAILURE(delete_topic());
  ASSERT_NO_FATAL_FAILURE(look());
  stop();
  expect_old_log();
}

/// Another member has claimed it: it may have read the new topic since. So only that member may record anything.
TEST_F(MissingPartition, is_left_to_the_last_member_that_has_claimed_it) {
  ASSERT_NO_FATAL_FAILURE(read_both());
  ASSERT_NO_FATAL_FAILURE(give_away());
  EXPECT_EQ(claim(1).highest_progress(), 20);
  ASSERT_NO_FATAL_FAILURE(delete_topic());
  ASSERT_NO_FATAL_FAILURE(recreate());
  stop();
  expect_old_log();
  EXPECT_THAT(log_text(), Not(HasSubstr("the topic was recreated without this partition")));
}

/// Its offset has expired, or an operator has deleted it. The partition is still there, and with it the records that have
/// taken effect.
TEST_F(MissingPartition, is_not_what_a_partition_is_taken_for_that_has_lost_its_offset) {
  ASSERT_NO_FATAL_FAILURE(read_both());
  ASSERT_NO_FATAL_FAILURE(give_away());
  broker->delete_offsets();
  ASSERT_NO_FATAL_FAILURE(look());
  stop();
  expect_old_log();
}

/// It is tried again.
TEST_F(MissingPartition, is_recorded_although_the_database_did_not_answer_at_first) {
  ASSERT_NO_FATAL_FAILURE(read_both());
  ASSERT_NO_FATAL_FAILURE(give_away());
  ASSERT_NO_FATAL_FAILURE(delete_topic());
  inbox->set_unavailable(true);
  topic("t", 1);
  ASSERT_NO_FATAL_FAILURE(look());
  inbox->set_unavailable(false);
  fill(0, 10, "new-0-");
  ASSERT_TRUE(eventually([&] { return ran_all("new-0-", 10) && all_committed("t", 1); }, 20s)) << log_text();
  stop();
  expect_new_log();
}

}  // namespace
}  // namespace turnstile
