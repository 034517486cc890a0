#pragma once
// The brokers that the contract suite of the Broker port runs against, and what its tests are written in.

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

/// One cluster; a test has topics and a group of its own in it.
class BrokerFixture {
 public:
  virtual ~BrokerFixture() = default;
  /// A broker whose consumers are in that group.
  virtual std::shared_ptr<Broker> broker(const std::string& group) = 0;
  virtual void create_topic(const std::string& name, std::int32_t partitions) = 0;
  /// False where the cluster cannot do that.
  virtual bool delete_topic(const std::string& name) = 0;
  /// From now on a send() to the topic that it names is refused.
  virtual std::string refused_topic() = 0;
};

std::unique_ptr<BrokerFixture> memory_world();
std::unique_ptr<BrokerFixture> mock_world();
/// Null when there is no Apache Kafka: TURNSTILE_TEST_KAFKA is not set.
std::unique_ptr<BrokerFixture> kafka_world();

/// A member of a group that keeps what it read.
class Reader final : public AssignmentListener {
 public:
  Reader(Broker& broker, const std::vector<std::string>& topics);
  ~Reader() override;

  std::vector<TopicPartitionOffset> on_assigned(std::span<const TopicPartition> partitions) override;
  void on_revoked(std::span<const TopicPartition> partitions, bool lost) override;
  void on_commit_end(std::span<const TopicPartitionOffset> offsets, bool committed) override;
  void on_topic_change(const std::string& topic, bool exists) override;

  /// Polls once, and takes at most `most` records from each partition that is not in `left_alone`.
  void step(std::size_t most = 100, std::chrono::milliseconds timeout = std::chrono::milliseconds(100));
  /// Steps until the condition holds; false when it does not within 30 s.
  bool until(const std::function<bool()>& condition, std::size_t most = 100);
  bool until_owns(std::size_t partitions);
  bool until_read(std::size_t records);
  /// Commits behind everything that it read.
  void commit_all();

  std::unique_ptr<BrokerConsumer> consumer;
  std::map<TopicPartition, Offset> starts;  ///< answered to on_assigned
  std::set<TopicPartition> owned;
  std::set<TopicPartition> left_alone;
  std::vector<OwnedMessage> read;         ///< in the order of reading
  std::map<TopicPartition, Offset> next;  ///< behind the last record that was read
  std::function<void(std::span<const TopicPartition>)> when_assigned;
  std::function<void(std::span<const TopicPartition>, bool)> when_revoked;
  int revocations = 0;
  std::vector<std::pair<TopicPartitionOffset, bool>> commits;  ///< what became of them, in the order of telling
  std::vector<std::pair<std::string, bool>> topic_changes;     ///< the same
};

/// Offsets read of one partition, in the order of reading.
std::vector<Offset> offsets_of(const std::vector<OwnedMessage>& read, std::int32_t partition);
OwnedMessage text(const std::string& topic, std::int32_t partition, const std::string& payload);
std::string fresh_name(const std::string& what);

}  // namespace turnstile::test
