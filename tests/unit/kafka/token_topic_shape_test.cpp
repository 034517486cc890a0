// What a process makes of brokers that know a new topic of the token log at different times.

#include "token_topic_shape.hpp"

#include <gmock/gmock.h>

#include <deque>

#include "turnstile/error.hpp"

namespace turnstile::kafka {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr TopicShape kUnknown{.partitions = 0, .replicas = 0, .brokers = 3};
constexpr TopicShape kWhole{.partitions = 1, .replicas = 3, .brokers = 3};

/// Brokers that give these answers one after the other, and then the last one again and again.
class Answers {
 public:
  explicit Answers(std::deque<TopicShape> answers) : answers_(std::move(answers)) {}
  TopicShape ensure(std::chrono::milliseconds most) {
    return existing_or_created(
        "orders.tokens", [this] { return next(); }, [this] { ++created; }, most);
  }
  int created = 0;

 private:
  TopicShape next() {
    const TopicShape answer = answers_.front();
    if (answers_.size() > 1) answers_.pop_front();
    return answer;
  }
  std::deque<TopicShape> answers_;
};

TEST(TokenTopicShape, of_a_topic_that_exists_is_the_first_answer) {
  Answers brokers({kWhole});
  EXPECT_EQ(brokers.ensure(0ms).replicas, 3);
  EXPECT_EQ(brokers.created, 0);
}

/// Several processes start for the first time: one of them creates the topic, and the broker that another one asks next
/// does not know it yet.
TEST(TokenTopicShape, of_a_topic_that_was_just_created_is_not_that_of_a_broker_that_does_not_know_it) {
  Answers brokers({kUnknown, kUnknown, kUnknown, kWhole});
  const TopicShape found = brokers.ensure(60s);
  EXPECT_EQ(found.partitions, 1);
  EXPECT_EQ(found.replicas, 3);
  EXPECT_EQ(brokers.created, 1);
}

TEST(TokenTopicShape, of_a_topic_that_stays_invisible_is_an_error_that_deletes_nothing) {
  Answers brokers({kUnknown});
  try {
    brokers.ensure(1ms);
    FAIL() << "it has no shape";
  } catch (const BrokerError& error) {
    EXPECT_EQ(error.code(), Code::kafka_unavailable);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("topic orders.tokens is not visible yet"), Not(HasSubstr("--delete"))));
  }
}

constexpr const char* kServers = "b1:9092";

TopicShape with(std::int32_t replicas, std::int32_t brokers) {
  return {.partitions = 1, .replicas = replicas, .brokers = brokers};
}

/// The first start found one of three brokers down. The topic then has two replicas, and later starts find three
/// brokers.
TEST(TokenTopicReplicas, that_are_fewer_than_the_brokers_now_stop_no_start) {
  const ReplicaRule rule(0);
  ASSERT_EQ(rule.of_new_topic(2), 2);
  const auto at_first = rule.check("orders.tokens", with(2, 2), true, kServers);
  ASSERT_TRUE(at_first);
  EXPECT_THAT(*at_first, AllOf(HasSubstr("was created with 2 replicas, because 2 brokers answered"),
                               HasSubstr("kafka-reassign-partitions.sh --bootstrap-server b1:9092"),
                               HasSubstr("\"topic\":\"orders.tokens\",\"partition\":0,\"replicas\":[ID,ID,ID]")));
  const auto later = rule.check("orders.tokens", with(2, 3), false, kServers);
  ASSERT_TRUE(later);
  EXPECT_THAT(*later, AllOf(HasSubstr("has 2 replicas, and 3 brokers answer"),
                            HasSubstr("kafka-reassign-partitions.sh"), Not(HasSubstr("--delete"))));
}

TEST(TokenTopicReplicas, that_are_enough_are_not_reported) {
  const ReplicaRule rule(0);
  EXPECT_EQ(rule.of_new_topic(5), 3);
  EXPECT_EQ(rule.check("t", with(3, 5), true, kServers), std::nullopt);
  EXPECT_EQ(rule.check("t", with(3, 2), false, kServers), std::nullopt) << "a broker is down";
  EXPECT_EQ(rule.check("t", with(1, 1), false, kServers), std::nullopt) << "a cluster of one broker";
  EXPECT_TRUE(rule.check("t", with(1, 1), true, kServers)) << "once: others of the cluster may be down";
  EXPECT_EQ(ReplicaRule(1).check("t", with(1, 3), true, kServers), std::nullopt) << "as it was set";
}

TEST(TokenTopicReplicas, that_are_fewer_than_the_setting_requires_stop_the_start_without_a_loss) {
  const ReplicaRule rule(3);
  EXPECT_EQ(rule.of_new_topic(1), 3);
  EXPECT_EQ(rule.check("t", with(3, 3), false, kServers), std::nullopt);
  try {
    (void)rule.check("t", with(2, 3), false, kServers);
    FAIL() << "2 are fewer than 3";
  } catch (const BrokerError& error) {
    EXPECT_EQ(error.code(), Code::token_log_misconfigured);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("has 2 replicas, fewer than the required 3"),
                                    HasSubstr("kafka-reassign-partitions.sh"), Not(HasSubstr("--delete"))));
  }
}

}  // namespace
}  // namespace turnstile::kafka
