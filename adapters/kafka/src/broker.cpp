#include "turnstile/kafka/broker.hpp"

#include <mutex>

#include "consumer.hpp"
#include "producer.hpp"
#include "sender.hpp"
#include "settings.hpp"
#include "topics.hpp"

namespace turnstile::kafka {
namespace {

/// Of how many topics one client asks. The time for each grows with the topics that the client knows: 2,000 topics took
/// 18 s with one client, and 4 s with eight (measured).
constexpr unsigned kTopicsOfInspector = 250;

class KafkaBroker final : public ports::Broker {
 public:
  KafkaBroker(Settings settings, std::shared_ptr<spdlog::logger> logger)
      : settings_(std::move(settings)), logger_(std::move(logger)) {}

  std::unique_ptr<ports::BrokerConsumer> open_consumer() override {
    close_inspector();  // a program asks about its topics before it consumes them
    return std::make_unique<KafkaConsumer>(settings_, logger_);
  }
  std::shared_ptr<ports::BrokerProducer> open_producer() override {
    return std::make_shared<KafkaProducer>(settings_, logger_);
  }
  std::unique_ptr<ports::BrokerSender> open_sender() override {
    return std::make_unique<KafkaSender>(settings_, logger_);
  }

  std::optional<ports::TopicInfo> describe(const std::string& topic, std::chrono::milliseconds timeout) override {
    const auto client = inspector();
    const auto partitions = partition_count(*client, topic, timeout);
    if (!partitions) return std::nullopt;
    auto kept = keeping(*client, topic, timeout);
    return ports::TopicInfo{*partitions, kept.retention, kept.segment, std::move(kept.why)};
  }

 private:
  /// Not a client for each topic, of which a program may have thousands: it would take 24 ms (measured), and librdkafka 2.0.2
  /// can abort while a client ends (seen once in about 30,000 times).
  std::shared_ptr<Client> inspector() {
    std::shared_ptr<Client> closed;
    const std::lock_guard lock(mutex_);
    if (asked_++ % kTopicsOfInspector == 0) closed.swap(inspector_);
    if (!inspector_) inspector_ = Client::open(Role::inspector, settings_, logger_);
    return inspector_;
  }
  void close_inspector() {
    std::shared_ptr<Client> closed;
    const std::lock_guard lock(mutex_);
    closed.swap(inspector_);
  }

  Settings settings_;
  std::shared_ptr<spdlog::logger> logger_;
  std::mutex mutex_;
  std::shared_ptr<Client> inspector_;
  unsigned asked_ = 0;
};

}  // namespace

void check_connection(const Settings& settings, std::chrono::milliseconds timeout) {
  check(settings);
  wait_for_answer(*Client::open(Role::inspector, settings, nullptr), timeout);
}

std::shared_ptr<ports::Broker> open_broker(const Settings& settings, std::shared_ptr<spdlog::logger> logger) {
  check(settings);
  return std::make_shared<KafkaBroker>(settings, std::move(logger));
}

}  // namespace turnstile::kafka
