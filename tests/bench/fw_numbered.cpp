// Fills a topic with messages that have both a producer's number and an id, so that both kinds of deduplication can be
// measured with it.
//  --brokers B --topic T --messages M --producers 4
// It opens the sessions in no database. The runner inserts them, each with `secret` as its secret.

#include <memory>
#include <string>
#include <vector>

#include "tests/bench/fw_common.hpp"
#include "turnstile/ids.hpp"
#include "turnstile/kafka/broker.hpp"
#include "turnstile/sender.hpp"

namespace {

using namespace turnstile;

constexpr std::int64_t kAtOnce = 10'000;
const std::string kSecret(32, 'b');

/// A new session for each call, which no database knows.
class Sessions final : public ports::Producers {
 public:
  ports::ProducerSession open(const ports::ProducerTerms&) override { return {new_message_id(), kSecret}; }
  bool heartbeat(const MessageId&) override { return true; }
  std::vector<std::optional<std::string>> secrets(std::span<const MessageId> ids) override {
    return std::vector<std::optional<std::string>>(ids.size(), kSecret);
  }
  std::int64_t expire() override { return 0; }
};

OwnedMessage message(const std::string& topic, std::int64_t number) {
  OwnedMessage message;
  message.topic = topic;
  message.payload = std::string(100, 'x');
  bench::Record{number, number % 100'000, bench::now_ns()}.write(*message.payload);
  message.headers = {{"message-id", new_message_id().text()}};
  return message;
}

}  // namespace

int main(int argc, char** argv) {
  bench::Args args(argc, argv);
  const auto broker = kafka::open_broker({{"bootstrap.servers", args.text("brokers")}}, nullptr);
  const std::string topic = args.text("topic");
  const std::int64_t messages = args.number("messages"), producers = args.number("producers", 4);
  args.done();
  std::vector<std::unique_ptr<NumberedSender>> senders;
  std::string sessions;
  for (std::int64_t i = 0; i < producers; ++i) {
    senders.push_back(std::make_unique<NumberedSender>(*broker, std::make_shared<Sessions>(),
                                                       NumberedSender::Options{.name = "bench"}));
    sessions += (i == 0 ? "" : " ") + senders.back()->session().text();
  }
  for (std::int64_t sent = 0, turn = 0; sent < messages; ++turn) {
    std::vector<OwnedMessage> some;
    for (std::int64_t i = 0; i < kAtOnce && sent < messages; ++i) some.push_back(message(topic, sent++));
    for (const auto& fate : senders[static_cast<std::size_t>(turn % producers)]->send(some)) {
      if (fate.kind != ports::BrokerSender::Fate::Kind::sent) bench::die("not sent: " + fate.why);
    }
  }
  bench::Report("fw_numbered")
      .add("topic", topic)
      .add("messages", messages)
      .add("secret", kSecret)
      .add("sessions", sessions)
      .print();
  return 0;
}
