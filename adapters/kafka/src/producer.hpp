#pragma once

#include <memory>
#include <mutex>
#include <thread>

#include "client.hpp"
#include "turnstile/ports/broker.hpp"

namespace turnstile::kafka {

/// A librdkafka producer, and the thread that serves the delivery reports of waiting senders. Thread-safe.
class ProducerLine final : private ClientEvents {
 public:
  ProducerLine(const Settings& settings, std::shared_ptr<spdlog::logger> logger);
  ~ProducerLine() override;
  ports::BrokerProducer::Sent send(const OwnedMessage& message);
  /// librdkafka has given up this producer: it refuses all further records.
  [[nodiscard]] bool broken() const noexcept;

 private:
  void on_delivered(const rd_kafka_message_t& record) noexcept override;
  void serve() noexcept;

  std::shared_ptr<Client> client_;
  Queue queue_;
  std::atomic<bool> stop_{false};
  std::thread server_;
};

/// Replaces a broken line with a new one (hazard: producer-errors). Thread-safe.
class KafkaProducer final : public ports::BrokerProducer {
 public:
  KafkaProducer(Settings settings, std::shared_ptr<spdlog::logger> logger);
  Sent send(const OwnedMessage& message) override;

 private:
  std::shared_ptr<ProducerLine> line();

  Settings settings_;
  std::shared_ptr<spdlog::logger> logger_;
  std::mutex mutex_;
  std::shared_ptr<ProducerLine> line_;
};

}  // namespace turnstile::kafka
