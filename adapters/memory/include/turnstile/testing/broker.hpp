#pragma once
// A broker in memory. For tests of your own handlers, and the twin of the Kafka adapter (both pass the contract suite
// in tests/contract). It has no background threads and does not sleep: things happen when a consumer polls.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "turnstile/ports/broker.hpp"

namespace turnstile::testing {

/// Thread-safe. Consumers and producers may outlive it.
///
/// Consumer groups work as Kafka's with the range assignor. When a member joins or leaves, each member learns it in its
/// next poll() and gives up all its partitions. It gets new ones once every member has polled.
class MemoryBroker final : public ports::Broker {
 public:
  /// `group` is the group of the consumers that open_consumer() opens.
  explicit MemoryBroker(std::string group = "turnstile");
  ~MemoryBroker() override;

  /// Throws BrokerError if it exists. `retention` is only reported: nothing is deleted.
  void create_topic(const std::string& name, std::int32_t partitions = 1,
                    std::optional<std::chrono::milliseconds> retention = std::nullopt);
  /// As a producer's send(). If `partition` < 0, the key decides the partition; records without a key go to the
  /// partitions in turn.
  ports::BrokerProducer::Sent produce(const OwnedMessage& message);
  /// Skips offsets, as compaction and transactions do.
  void skip_offsets(const TopicPartition& at, Offset count);
  /// Deletes the records below, as retention does.
  void delete_before(const TopicPartitionOffset& first_kept);
  /// Deletes the topic as Kafka does: its committed offsets are deleted too, and its consumers learn it in their next
  /// poll(). Does nothing if there is no such topic.
  void delete_topic(const std::string& name);
  /// Deletes the topic and creates it again with as many partitions, before any consumer notices. `fill` appends
  /// records to it.
  void replace_topic(const std::string& name,
                     const std::function<void(const std::function<void(const OwnedMessage&)>&)>& fill);
  /// Deletes the records from `end` on, as an unclean leader election does. The next record gets that offset.
  void truncate(const TopicPartitionOffset& end);
  /// All records of the topic: by partition, then by offset.
  [[nodiscard]] std::vector<OwnedMessage> records(const std::string& topic) const;

  /// Producers to this topic get a RecordNotStored with this text, until allow().
  void refuse(const std::string& topic, std::string why);
  /// Ends the refusal.
  void allow(const std::string& topic);
  /// Refuses the next `count` commits of offsets, as a coordinator does that is starting.
  void refuse_commits(int count);
  /// Does not answer which offsets are committed, until it is called with false.
  void refuse_lookups(bool refuse);
  /// Only the next `count` of these calls throw.
  void refuse_next_lookups(int count);
  /// How many of these calls were made, over all members.
  [[nodiscard]] std::int64_t lookups() const;
  /// Deletes the committed offsets of the default group, as Kafka does if a group had no members for a week.
  void delete_offsets();

  /// Opens a consumer of the default group.
  std::unique_ptr<ports::BrokerConsumer> open_consumer() override;
  /// Opens a consumer of this group.
  std::unique_ptr<ports::BrokerConsumer> open_consumer(const std::string& group);
  /// Opens a producer for dead letters and replies.
  std::shared_ptr<ports::BrokerProducer> open_producer() override;
  /// Opens a sender for batches.
  std::unique_ptr<ports::BrokerSender> open_sender() override;
  std::optional<ports::TopicInfo> describe(const std::string& topic, std::chrono::milliseconds timeout) override;

  /// Simulates kill -9: the member does nothing and learns nothing from now on, and the others get its partitions.
  /// Members are numbered from 0 in the order in which they were opened, over all groups.
  void crash(std::size_t member);
  /// Simulates a pause longer than the session: the others get the member's partitions. In its next poll() the member
  /// learns that they are lost, and joins again.
  void evict(std::size_t member);

  /// The committed offset of the default group. Absent: there is none.
  [[nodiscard]] std::optional<Offset> committed(const TopicPartition& of) const;
  /// The committed offset of this group. Absent: there is none.
  [[nodiscard]] std::optional<Offset> committed(const TopicPartition& of, const std::string& group) const;
  /// Waits until the group has committed at least this offset. False after `timeout`.
  bool wait_committed(const TopicPartitionOffset& at_least, std::chrono::milliseconds timeout) const;
  /// How many records of the partition consumers have taken, over all groups.
  [[nodiscard]] std::int64_t taken(const TopicPartition& of) const;
  /// Waits until taken() is at least `at_least`. False after `timeout`.
  bool wait_taken(const TopicPartition& of, std::int64_t at_least, std::chrono::milliseconds timeout) const;
  /// Waits until the topic holds at least this number of records. False after `timeout`.
  bool wait_records(const std::string& topic, std::size_t at_least, std::chrono::milliseconds timeout) const;

 private:
  std::string group_;
  std::shared_ptr<struct MemoryCluster> cluster_;
};

}  // namespace turnstile::testing
