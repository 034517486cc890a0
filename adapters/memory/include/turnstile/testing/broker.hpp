#pragma once
// A broker in memory: for tests of one's own handlers, and the twin of the Kafka adapter (both pass the contract suite in
// tests/contract). Nothing sleeps and nothing runs in the background: things happen when a consumer polls.

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
/// Consumer groups are as Kafka's with the range assignor: when a member joins or leaves, each member hears of it in its next
/// poll(), gives all its partitions up, and gets new ones once every member has polled.
class MemoryBroker final : public Broker {
 public:
  /// `group`: of the consumers that open_consumer() gives.
  explicit MemoryBroker(std::string group = "turnstile");
  ~MemoryBroker() override;

  /// Throws BrokerError when it is there already. `retention` is only told, nothing is deleted by it.
  void create_topic(const std::string& name, std::int32_t partitions = 1,
                    std::optional<std::chrono::milliseconds> retention = std::nullopt);
  /// As a producer's send(); `partition` < 0: by the key, or in turn for records without one.
  BrokerProducer::Sent produce(const OwnedMessage& message);
  /// Offsets that hold no record, as compaction and transactions leave behind.
  void skip_offsets(const TopicPartition& at, Offset count);
  /// What retention does: records below are gone.
  void delete_before(const TopicPartitionOffset& first_kept);
  /// As Kafka does it: the offsets that groups have committed go with it, and its consumers hear of it in their next poll(). Nothing
  /// happens when there is no such topic.
  void delete_topic(const std::string& name);
  /// The same, and creates it again with as many partitions, before any consumer looks; `fill` appends records to it.
  void replace_topic(const std::string& name,
                     const std::function<void(const std::function<void(const OwnedMessage&)>&)>& fill);
  /// What an unclean election of a leader does: records from `end` on are gone, and the next one gets that offset.
  void truncate(const TopicPartitionOffset& end);
  /// All records of the topic: by partition, then by offset.
  [[nodiscard]] std::vector<OwnedMessage> records(const std::string& topic) const;

  /// Producers to that topic get BrokerError with that text, until `allow`.
  void refuse(const std::string& topic, std::string why);
  /// Ends a refusal of this topic's records.
  void allow(const std::string& topic);
  /// The next `count` commits of offsets are refused, as by a coordinator that is only starting.
  void refuse_commits(int count);

  /// A consumer of the default group.
  std::unique_ptr<BrokerConsumer> open_consumer() override;
  /// A consumer of this group.
  std::unique_ptr<BrokerConsumer> open_consumer(const std::string& group);
  /// A producer for dead letters and replies.
  std::shared_ptr<BrokerProducer> open_producer() override;
  /// A sender for batches.
  std::unique_ptr<BrokerSender> open_sender() override;
  std::optional<TopicInfo> describe(const std::string& topic, std::chrono::milliseconds timeout) override;

  /// Members are numbered from 0 as they were opened, over all groups. As by kill -9: from now on the member does nothing
  /// and hears nothing, and the others get its partitions.
  void crash(std::size_t member);
  /// As by a pause longer than the session: the others get the member's partitions; in its next poll() it hears that they are
  /// lost, and joins again.
  void evict(std::size_t member);

  /// What the default group has committed of this partition; nothing: no offset.
  [[nodiscard]] std::optional<Offset> committed(const TopicPartition& of) const;
  /// The same for this group.
  [[nodiscard]] std::optional<Offset> committed(const TopicPartition& of, const std::string& group) const;
  /// Waits until the group has committed at least that offset. False when the time was over first.
  bool wait_committed(const TopicPartitionOffset& at_least, std::chrono::milliseconds timeout) const;
  /// How many records of the partition consumers have taken, over all groups.
  [[nodiscard]] std::int64_t taken(const TopicPartition& of) const;
  /// Waits until that is at least so many. False when the time was over first.
  bool wait_taken(const TopicPartition& of, std::int64_t at_least, std::chrono::milliseconds timeout) const;
  /// Waits until the topic holds at least that many records. False when the time was over first.
  bool wait_records(const std::string& topic, std::size_t at_least, std::chrono::milliseconds timeout) const;

 private:
  std::string group_;
  std::shared_ptr<struct MemoryCluster> cluster_;
};

}  // namespace turnstile::testing
