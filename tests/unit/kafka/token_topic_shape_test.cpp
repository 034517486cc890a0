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

}  // namespace
}  // namespace turnstile::kafka
