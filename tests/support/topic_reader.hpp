#pragma once
// Reads the contents of a topic for a test.

#include <unistd.h>

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tests/support/eventually.hpp"
#include "tests/support/world.hpp"
#include "turnstile/kafka/broker.hpp"

namespace turnstile::test {

/// Reads a topic from its beginning, in a group of its own. In a shared group it would delay rebalances, because it
/// does not poll.
class TopicReader final : private ports::AssignmentListener {
 public:
  explicit TopicReader(const std::string& topic)
      : broker_(kafka::open_broker({{"bootstrap.servers", kafka_servers()}, {"group.id", group()}}, nullptr)),
        consumer_(broker_->open_consumer()) {
    consumer_->subscribe({topic}, *this);
  }
  ~TopicReader() override { consumer_->close(); }
  bool until(const std::function<bool()>& enough, std::chrono::milliseconds timeout = std::chrono::seconds(60)) {
    return eventually(
        [&] {
          consumer_->poll(std::chrono::milliseconds(20));
          for (const auto& at : assigned_) {
            while (const auto block = consumer_->take(at, 1'000)) {
              for (const Message& message : block->messages()) read.push_back(message.own());
            }
          }
          return enough();
        },
        timeout);
  }
  [[nodiscard]] std::set<std::string> payloads() const {
    std::set<std::string> all;
    for (const auto& record : read) all.insert(record.payload.value_or("null"));
    return all;
  }
  /// The ids of each payload: one, however often it was sent.
  [[nodiscard]] std::map<std::string, std::set<std::string>> ids() const {
    std::map<std::string, std::set<std::string>> all;
    for (const auto& record : read)
      all[record.payload.value_or("null")].emplace(Message(record).header("message-id").value_or("none"));
    return all;
  }
  std::vector<OwnedMessage> read;

 private:
  static std::string group() {
    static int count = 0;
    return "reader-" + std::to_string(::getpid()) + "-" + std::to_string(++count);
  }
  std::vector<TopicPartitionOffset> on_assigned(std::span<const TopicPartition> partitions) override {
    assigned_.assign(partitions.begin(), partitions.end());
    std::vector<TopicPartitionOffset> starts;
    for (const auto& at : partitions) starts.push_back({at, 0});
    return starts;
  }
  void on_revoked(std::span<const TopicPartition>, bool) override { assigned_.clear(); }

  std::shared_ptr<ports::Broker> broker_;
  std::unique_ptr<ports::BrokerConsumer> consumer_;
  std::vector<TopicPartition> assigned_;
};

}  // namespace turnstile::test
