#pragma once
// A PollLoop with the in-memory broker and store, and a topic with 12 records.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/captured_log.hpp"
#include "turnstile/error.hpp"
#include "turnstile/poll_loop.hpp"
#include "turnstile/testing/broker.hpp"
#include "turnstile/testing/inbox.hpp"
#include "turnstile/turnstile.hpp"

namespace turnstile::test {

class PollLoopWatermark : public ::testing::Test {
 protected:
  void SetUp() override {
    broker->create_topic("t", 1);
    broker->create_topic("t.dlq", 1);
    produce_more(12);
  }
  void produce_more(int count) {
    for (int i = 0; i < count; ++i) {
      OwnedMessage message;
      message.topic = "t";
      message.partition = 0;
      message.headers = {{"message-id", "m" + std::to_string(records.size() + static_cast<std::size_t>(i))}};
      broker->produce(message);
    }
    records = broker->records("t");
  }

  static Pipeline insert() {
    return [](const Message& message, Context& context) { context.tx().exec("INSERT", message.offset()); };
  }
  std::unique_ptr<PollLoop> make_loop(Pipeline pipeline) {
    auto loop = std::make_unique<PollLoop>(Config{}, Backends{broker, inbox});
    loop->topic("t", std::move(pipeline) | dead_letter()).logger(logger);
    return loop;
  }
  Settled handle(PollLoop& loop, Offset offset) {
    return loop.handle(Message(records.at(static_cast<std::size_t>(offset))));
  }
  Offset read_again(PollLoop& loop, Offset offset) {
    try {
      handle(loop, offset);
    } catch (const ReadAgain& again) {
      return again.from.offset;
    }
    ADD_FAILURE() << "it was handled";
    return -1;
  }
  std::string log_text() {
    logger->flush();
    return text.str();
  }

  const TopicPartition at{"t", 0};
  std::shared_ptr<testing::MemoryBroker> broker = std::make_shared<testing::MemoryBroker>();
  std::shared_ptr<testing::MemoryInbox> inbox = std::make_shared<testing::MemoryInbox>();
  std::vector<OwnedMessage> records;  // by offset; includes those that the broker has deleted since
  test::CapturedLog text;
  std::shared_ptr<spdlog::logger> logger = std::make_shared<spdlog::logger>("test", text.sink());
};

}  // namespace turnstile::test
