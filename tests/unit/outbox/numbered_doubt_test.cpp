// NumberedSender calls a message refused only if no broker can have it: the program then sends it under another number.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/null_sink.h>
#include <spdlog/spdlog.h>

#include <deque>

#include "message/request_headers.hpp"
#include "turnstile/sender.hpp"
#include "turnstile/testing/broker.hpp"
#include "turnstile/testing/inbox.hpp"

namespace turnstile::detail {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Fate = ports::BrokerSender::Fate;

/// Gives the records these fates, in this order. Further records are refused.
class ScriptedSender final : public ports::BrokerSender {
 public:
  explicit ScriptedSender(std::deque<Fate::Kind>& script) : script_(script) {}
  std::vector<Fate> send(std::span<const OwnedMessage> records) override {
    std::vector<Fate> fates;
    for (std::size_t i = 0; i < records.size(); ++i) {
      const auto kind = script_.empty() ? Fate::Kind::refused : script_.front();
      if (!script_.empty()) script_.pop_front();
      fates.push_back({kind, kind == Fate::Kind::refused ? "too large." : ""});
    }
    return fates;
  }
  void cancel() noexcept override {}

 private:
  std::deque<Fate::Kind>& script_;
};

class ScriptedBroker final : public ports::Broker {
 public:
  std::unique_ptr<ports::BrokerConsumer> open_consumer() override { return nullptr; }
  std::shared_ptr<ports::BrokerProducer> open_producer() override { return nullptr; }
  std::unique_ptr<ports::BrokerSender> open_sender() override { return std::make_unique<ScriptedSender>(script); }
  std::optional<ports::TopicInfo> describe(const std::string&, std::chrono::milliseconds) override {
    return ports::TopicInfo{.partitions = 1, .retention = {}};
  }

  std::deque<Fate::Kind> script;
};

class NumberedDoubt : public ::testing::TestWithParam<NumberedSender::Acknowledge> {
 protected:
  static OwnedMessage message() {
    OwnedMessage message;
    message.topic = "payments";
    message.payload = "x";
    return message;
  }
  std::vector<Fate> send(std::vector<OwnedMessage> messages, std::deque<Fate::Kind> fates) {
    broker_.script = std::move(fates);
    return sender_.send(messages);
  }
  std::int64_t acknowledged() {
    return std::get<StampedRequest>(request_of(Message(sender_.stamp(message()).message))).request.acked;
  }

  ScriptedBroker broker_;
  testing::MemoryInbox inbox_;
  NumberedSender sender_{
      broker_,
      inbox_.producers(),
      {.name = "shop",
       .acknowledge = GetParam(),
       .logger = std::make_shared<spdlog::logger>("quiet", std::make_shared<spdlog::sinks::null_sink_mt>())}};
};

TEST_P(NumberedDoubt, ends_only_when_the_broker_accepts_the_message) {
  const auto stamped = sender_.stamp(message());
  EXPECT_EQ(send({stamped.message}, {Fate::Kind::unknown})[0].kind, Fate::Kind::unknown);
  for (int i = 0; i < 2; ++i) {
    const auto again = send({stamped.message}, {Fate::Kind::refused});
    EXPECT_EQ(again[0].kind, Fate::Kind::unknown) << "the first send may have stored it";
    EXPECT_THAT(again[0].why, AllOf(HasSubstr("too large."), HasSubstr("with its stamp")));
  }
  EXPECT_EQ(acknowledged(), 0) << "it may be sent again";
  EXPECT_EQ(send({stamped.message}, {Fate::Kind::sent})[0].kind, Fate::Kind::sent);
  sender_.acknowledge(stamped);
  EXPECT_EQ(acknowledged(), 1);
}

TEST_P(NumberedDoubt, ends_when_the_program_gives_the_message_up) {
  const auto stamped = sender_.stamp(message());
  send({stamped.message}, {Fate::Kind::unknown});
  sender_.acknowledge(stamped);
  EXPECT_EQ(acknowledged(), 1);
}

TEST_P(NumberedDoubt, does_not_arise_if_the_broker_has_refused_it_each_time) {
  const auto stamped = sender_.stamp(message());
  EXPECT_EQ(send({stamped.message}, {Fate::Kind::refused})[0].kind, Fate::Kind::refused);
  EXPECT_EQ(send({stamped.message}, {})[0].kind, Fate::Kind::refused) << "its number is used up";
}

TEST_P(NumberedDoubt, is_of_a_message_that_was_sent_before) {
  const auto stamped = sender_.stamp(message());
  send({stamped.message}, {Fate::Kind::sent});
  EXPECT_EQ(send({stamped.message}, {Fate::Kind::refused})[0].kind, Fate::Kind::unknown);
  const auto twice = sender_.stamp(message());
  const auto fates = send({twice.message, twice.message}, {Fate::Kind::refused, Fate::Kind::sent});
  EXPECT_EQ(fates[0].kind, Fate::Kind::unknown) << "its copy was sent";
}

TEST_P(NumberedDoubt, is_of_a_message_of_another_session) {
  NumberedSender other{broker_, inbox_.producers(), {.name = "shop", .logger = {}}};
  const auto stamped = other.stamp(message());
  EXPECT_EQ(send({stamped.message}, {Fate::Kind::refused})[0].kind, Fate::Kind::unknown);
}

INSTANTIATE_TEST_SUITE_P(
    , NumberedDoubt, ::testing::Values(NumberedSender::Acknowledge::delivered, NumberedSender::Acknowledge::by_hand),
    [](const auto& test) { return test.param == NumberedSender::Acknowledge::by_hand ? "by_hand" : "delivered"; });

}  // namespace
}  // namespace turnstile::detail
