#pragma once
// The brokers for the contract suite of the port Broker, and the helpers of its tests.

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "turnstile/ports/broker.hpp"

namespace turnstile::test {

/// A cluster. Each test has its own topics and its own group in it.
class BrokerFixture {
 public:
  virtual ~BrokerFixture() = default;
  /// A broker whose consumers join this group.
  virtual std::shared_ptr<ports::Broker> broker(const std::string& group) = 0;
  virtual void create_topic(const std::string& name, std::int32_t partitions) = 0;
  /// False if the cluster cannot delete topics.
  virtual bool delete_topic(const std::string& name) = 0;
  /// Names a topic for which send() is refused from now on.
  virtual std::string refused_topic() = 0;
};

std::unique_ptr<BrokerFixture> memory_world();
std::unique_ptr<BrokerFixture> mock_world();
/// Null without Apache Kafka: TURNSTILE_TEST_KAFKA is not set.
std::unique_ptr<BrokerFixture> kafka_world();

/// A member of a group that keeps the records it reads.
class Reader final : public ports::AssignmentListener {
 public:
  Reader(ports::Broker& broker, const std::vector<std::string>& topics);
  ~Reader() override;

  std::vector<TopicPartitionOffset> on_assigned(std::span<const TopicPartition> partitions) override;
  void on_revoked(std::span<const TopicPartition> partitions, bool lost) override;
  void on_commit_end(std::span<const TopicPartitionOffset> offsets, bool committed) override;
  void on_topic_change(const std::string& topic, bool exists) override;

  /// Polls once, and takes up to `most` records from each partition that is not in `left_alone`.
  void step(std::size_t most = 100, std::chrono::milliseconds timeout = std::chrono::milliseconds(100));
  /// Steps until the condition is true. False after 30 s.
  bool until(const std::function<bool()>& condition, std::size_t most = 100);
  bool until_owns(std::size_t partitions);
  bool until_read(std::size_t records);
  /// Commits the offsets after all records that it has read.
  void commit_all();

  std::unique_ptr<ports::BrokerConsumer> consumer;
  std::map<TopicPartition, Offset> starts;  ///< returned from on_assigned
  std::set<TopicPartition> owned;
  std::set<TopicPartition> left_alone;
  std::vector<OwnedMessage> read;         ///< in the order of reading
  std::map<TopicPartition, Offset> next;  ///< the offset after the last record that was read
  std::function<void(std::span<const TopicPartition>)> when_assigned;
  std::function<void(std::span<const TopicPartition>, bool)> when_revoked;
  int revocations = 0;
  std::vector<std::pair<TopicPartitionOffset, bool>> commits;  ///< the results of commits, in the order of the calls
  std::vector<std::pair<std::string, bool>> topic_changes;     ///< in the order of the calls
};

/// The offsets read from a partition, in the order of reading.
std::vector<Offset> offsets_of(const std::vector<OwnedMessage>& read, std::int32_t partition);
OwnedMessage text(const std::string& topic, std::int32_t partition, const std::string& payload);
std::string fresh_name(const std::string& what);

}  // namespace turnstile::test
