// A consumer that takes over a partition of a topic that was recreated, from a member that had not found the new topic.

#include "tests/unit/engine/engine_log_changes_fixture.hpp"

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
  static void fill(const Append& append, const std::string& prefix) {
    for (int i = 0; i < 40; ++i) {
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
  void expect_all_read() {
    EXPECT_TRUE(eventually([&] { return ran_all("another-", 40) && all_committed("t", 2); })) << log_text();
    EXPECT_EQ(ran().size(), 80U) << "nothing runs twice";
  }
  void TearDown() override {
    if (app) app->stop();
    if (thread.joinable()) thread.join();
  }
  static Pipeline by_place(Pipeline p) { return std::move(p) | by_offset(); }
  struct Idle final : ports::AssignmentListener {
    std::vector<TopicPartitionOffset> on_assigned(std::span<const TopicPartition>) override { return {}; }
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

}  // namespace
}  // namespace turnstile
