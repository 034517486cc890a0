// PollLoop on the twins in memory: what its caller must know of brokers and of other loops.

#include "turnstile/poll_loop.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <sstream>

#include "turnstile/error.hpp"
#include "turnstile/testing/broker.hpp"
#include "turnstile/testing/inbox.hpp"
#include "turnstile/turnstile.hpp"

namespace turnstile {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

struct Loop {
  std::ostringstream log;
  PollLoop loop;

  Loop(const Config& config, Pipeline pipeline, const std::shared_ptr<testing::MemoryBroker>& broker,
       const std::shared_ptr<testing::MemoryInbox>& inbox)
      : loop(config, Backends{broker, inbox}) {
    loop.logger(std::make_shared<spdlog::logger>("t", std::make_shared<spdlog::sinks::ostream_sink_mt>(log)));
    loop.topic("t", std::move(pipeline));
  }
  Settled handle(Offset offset) {
    OwnedMessage message;
    message.topic = "t";
    message.offset = offset;
    message.headers = {{"message-id", "id-" + std::to_string(offset)}};
    return loop.handle(Message(message));
  }
};

Pipeline insert() {
  return [](const Message& message, Context& ctx) { ctx.tx().exec("INSERT", message.offset()); };
}

class PollLoopTest : public ::testing::Test {
 protected:
  std::shared_ptr<testing::MemoryBroker> broker_ = std::make_shared<testing::MemoryBroker>();
  std::shared_ptr<testing::MemoryInbox> inbox_ = std::make_shared<testing::MemoryInbox>();
};

TEST_F(PollLoopTest, handles_records_of_a_topic_that_its_broker_does_not_have) {
  Loop loop(Config{}, insert() | transactional(), broker_, inbox_);
  EXPECT_EQ(loop.handle(0), Settled::done);
  EXPECT_THAT(loop.log.str(), HasSubstr("topic t is not in the Kafka of [kafka]"));

  Config config;
  config.topics["t"].keep_ids_for = std::chrono::hours(24);
  Loop with_ids(config, insert() | transactional(), broker_, inbox_);
  EXPECT_EQ(with_ids.handle(1), Settled::done);
  EXPECT_THAT(with_ids.log.str(), Not(HasSubstr("is not in the Kafka")));
}

TEST_F(PollLoopTest, needs_the_topics_that_it_sends_to) {
  Loop loop(Config{}, insert() | transactional() | dead_letter("t.dlq"), broker_, inbox_);
  try {
    loop.handle(0);
    ADD_FAILURE() << "it started";
  } catch (const BrokerError& error) {
    EXPECT_THAT(error.what(), HasSubstr("dead letter topic 't.dlq' does not exist"));
    EXPECT_THAT(error.what(), Not(HasSubstr("topic 't' does not exist")));
  }
}

/// As its header says: a partition must be with one loop of a group at a time.
TEST_F(PollLoopTest, two_of_one_group_on_one_partition_fence_each_other) {
  Loop one(Config{}, insert() | transactional(), broker_, inbox_),
      other(Config{}, insert() | transactional(), broker_, inbox_);
  EXPECT_EQ(one.handle(0), Settled::done);
  EXPECT_EQ(other.handle(1), Settled::done);
  EXPECT_THROW(one.handle(2), Fenced);
  EXPECT_EQ(one.handle(2), Settled::done) << "it claims the partition anew";
  EXPECT_THROW(other.handle(3), Fenced);
}

}  // namespace
}  // namespace turnstile
