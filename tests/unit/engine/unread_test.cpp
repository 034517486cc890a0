// A partition whose records do not arrive, or whose end Kafka does not tell, with the in-memory broker and store.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <optional>

#include "tests/support/eventually.hpp"
#include "tests/support/forwarding_broker.hpp"
#include "tests/unit/engine/engine_fixture.hpp"

namespace turnstile {
namespace {

using namespace std::chrono_literals;
using test::eventually;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kSilent = "broker 3, which leads it, does not answer";

/// What the leader of partition 0 does.
struct Leader {
  std::atomic<bool> answers{true};
  std::atomic<Offset> unread{0};      ///< how many records it has that it does not send
  std::atomic<bool> is_known{true};   ///< false: the topic was deleted
  std::atomic<int> asked_in_vain{0};  ///< how often the reason was asked
};

class Reader final : public test::ForwardingConsumer {
 public:
  Reader(std::unique_ptr<ports::BrokerConsumer> inner, Leader& leader)
      : ForwardingConsumer(std::move(inner)), leader_(leader) {}
  std::vector<std::optional<ports::PartitionEnd>> ends(std::span<const TopicPartition> of,
                                                       std::chrono::milliseconds timeout) override {
    auto ends = ForwardingConsumer::ends(of, timeout);
    for (std::size_t i = 0; i < ends.size(); ++i) {
      if (of[i].partition != 0) continue;
      if (ends[i]) ends[i]->readable = ends[i]->last += leader_.unread;
      if (!leader_.answers) ends[i].reset();
    }
    return ends;
  }
  std::vector<std::string> why_no_end(std::span<const TopicPartition> of, std::chrono::milliseconds) override {
    const std::vector<std::string> why(of.size(), leader_.is_known ? kSilent : "");
    ++leader_.asked_in_vain;
    return why;
  }

 private:
  Leader& leader_;
};

class UnreadTest : public test::EngineTest {
 protected:
  UnreadTest() { topic("t", 2); }
  void TearDown() override {
    if (app) app->stop();
    if (thread.joinable()) thread.join();
  }
  void run(bool observed = true) {
    Config c = config();
    c.consumer.stall_after = 200ms;
    app = std::make_unique<Consumer>(c, Backends{kafka, inbox});
    auto& t = app->topic("t", test::kEffect | transactional());
    if (observed) t.observe(counts);
    t.handle_signals(false).logger(logger);
    thread = start(*app);
  }
  void publish_one() {
    OwnedMessage message;
    message.topic = "t";
    message.partition = 0;
    message.headers = {{"message-id", "m" + std::to_string(published++)}};
    broker->produce(message);
  }
  std::vector<PartitionProblem> problems() const { return app->health().problems; }
  PartitionStatus first() const {
    for (const auto& partition : app->status().partitions) {
      if (partition.at.partition == 0) return partition;
    }
    return {};
  }

  const std::shared_ptr<test::ForwardingBroker<Reader, Leader>> kafka =
      std::make_shared<test::ForwardingBroker<Reader, Leader>>(broker);
  Leader& leader = kafka->state;
  int published = 0;
  std::unique_ptr<Consumer> app;
  std::thread thread;
};

TEST_F(UnreadTest, a_partition_whose_leader_does_not_answer_is_reported_until_it_answers) {
  publish_one();
  run();
  ASSERT_TRUE(eventually([&] { return first().lag() == 0; })) << log_text();
  leader.answers = false;
  ASSERT_TRUE(eventually([&] { return !problems().empty(); })) << log_text();
  EXPECT_EQ(problems()[0].at, (TopicPartition{"t", 0}));
  EXPECT_EQ(problems()[0].offset, std::nullopt);
  EXPECT_THAT(problems()[0].reason, HasSubstr(kSilent));
  EXPECT_EQ(first().end, 1) << "the last known one";
  EXPECT_TRUE(eventually([&] { return log_text().find("code=partition_stalled") != std::string::npos; })) << log_text();
  EXPECT_THAT(log_text(),
              HasSubstr(std::string("does not tell where the partition ends, so records may wait there: ") + kSilent));
  EXPECT_EQ(problems().size(), 1U) << "the leader of the quiet partition 1 answers";
  leader.answers = true;
  EXPECT_TRUE(eventually([&] { return problems().empty(); })) << log_text();
  publish_one();
  EXPECT_TRUE(broker->wait_committed({{"t", 0}, 2}, 20s));
  EXPECT_THAT(log_text(), Not(HasSubstr("partition=1")));
}

TEST_F(UnreadTest, a_partition_whose_records_do_not_arrive_is_reported_until_they_do) {
  publish_one();
  leader.unread = 7;
  run();
  ASSERT_TRUE(eventually([&] { return !problems().empty(); })) << log_text();
  EXPECT_THAT(problems()[0].reason, HasSubstr("records below offset 8 wait in Kafka"));
  EXPECT_EQ(first().lag(), 7);
  leader.unread = 0;
  EXPECT_TRUE(eventually([&] { return problems().empty(); })) << log_text();
}

/// The watchdog needs what Kafka tells also where nobody looks at metrics.
TEST_F(UnreadTest, a_silent_leader_is_logged_without_observers) {
  leader.answers = false;
  run(false);
  EXPECT_TRUE(eventually([&] { return log_text().find("code=partition_stalled") != std::string::npos; })) << log_text();
}

/// topic_deleted reports it.
TEST_F(UnreadTest, a_partition_that_does_not_exist_any_more_is_no_stall) {
  leader.answers = false;
  leader.is_known = false;
  run();
  ASSERT_TRUE(eventually([&] { return leader.asked_in_vain >= 1; })) << log_text();
  leader.is_known = true;  // the next answer is that of a silent broker: it is the first that is reported
  ASSERT_TRUE(eventually([&] { return !problems().empty(); })) << log_text();
  EXPECT_GE(leader.asked_in_vain, 2) << "reported although the partition did not exist";
}

}  // namespace
}  // namespace turnstile
