#include "turnstile/kafka/broker.hpp"

#include "consumer.hpp"
#include "producer.hpp"
#include "sender.hpp"
#include "settings.hpp"
#include "topics.hpp"

namespace turnstile::kafka {
namespace {

class KafkaBroker final : public ports::Broker {
 public:
  KafkaBroker(Settings settings, std::shared_ptr<spdlog::logger> logger)
      : settings_(std::move(settings)), logger_(std::move(logger)) {}

  std::unique_ptr<ports::BrokerConsumer> open_consumer() override {
    return std::make_unique<KafkaConsumer>(settings_, logger_);
  }
  std::shared_ptr<ports::BrokerProducer> open_producer() override {
    return std::make_shared<KafkaProducer>(settings_, logger_);
  }
  std::unique_ptr<ports::BrokerSender> open_sender() override {
    return std::make_unique<KafkaSender>(settings_, logger_);
  }

  std::optional<ports::TopicInfo> describe(const std::string& topic, std::chrono::milliseconds timeout) override {
    const auto client = Client::open(Role::inspector, settings_, logger_);
    const auto partitions = partition_count(*client, topic, timeout);
    if (!partitions) return std::nullopt;
    const auto kept = keeping(*client, topic, timeout);
    return ports::TopicInfo{*partitions, kept.retention, kept.segment};
  }

 private:
  Settings settings_;
  std::shared_ptr<spdlog::logger> logger_;
};

}  // namespace

std::shared_ptr<ports::Broker> open_broker(const Settings& settings, std::shared_ptr<spdlog::logger> logger) {
  check(settings);
  return std::make_shared<KafkaBroker>(settings, std::move(logger));
}

}  // namespace turnstile::kafka
