#pragma once
// What the framework needs of a message broker. Implemented by adapters/kafka and adapters/memory; both pass the same
// contract suite.

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "turnstile/message.hpp"

namespace turnstile {

/// A run of records of one partition, in offset order. Owns their bytes; the views live as long as it does. May be
/// released on any thread.
class Block {
 public:
  virtual ~Block() = default;
  [[nodiscard]] virtual std::span<const Message> messages() const noexcept = 0;
};

/// Told of changes of the assignment, on the thread that calls BrokerConsumer::poll() or close().
class AssignmentListener {
 public:
  virtual ~AssignmentListener() = default;
  /// New partitions. The answer says where to start those that it names; the others start at the group's committed
  /// offset, or where auto.offset.reset says. May call committed() of the consumer.
  virtual std::vector<TopicPartitionOffset> on_assigned(std::span<const TopicPartition> partitions) = 0;
  /// They are taken away when this returns. `lost`: they already belong to somebody else, do not commit.
  virtual void on_revoked(std::span<const TopicPartition> partitions, bool lost) = 0;
};

/// One member of a consumer group. All calls from one thread, except wake().
class BrokerConsumer {
 public:
  virtual ~BrokerConsumer() = default;

  /// `listener` must outlive the consumer.
  virtual void subscribe(const std::vector<std::string>& topics, AssignmentListener& listener) = 0;
  /// Serves rebalances and errors, then waits until a partition may have records, wake() was called, or `timeout` is
  /// over. Must be called at least every max.poll.interval. Throws BrokerError when the broker refuses us for good
  /// (authentication, authorization, unknown topic); passing failures are logged by the adapter and retried.
  virtual void poll(std::chrono::milliseconds timeout) = 0;
  /// At most `most` records that are there, without waiting; null when there are none, or when the partition is not ours.
  virtual std::unique_ptr<Block> take(const TopicPartition& from, std::size_t most) = 0;
  /// From another thread: ends a waiting poll().
  virtual void wake() noexcept = 0;
  /// The group's committed offsets (next to be read), in the order asked; nothing where there is none. Waits at most
  /// `timeout`; throws BrokerError.
  virtual std::vector<std::optional<Offset>> committed(std::span<const TopicPartition> of,
                                                       std::chrono::milliseconds timeout) = 0;
  /// Commits next-to-be-read offsets. `wait`: until the broker has answered. Never throws for a partition that is no
  /// longer ours (trap 23).
  virtual void commit(std::span<const TopicPartitionOffset> offsets, bool wait) = 0;
  /// Reads an assigned partition again from there. Records taken before are the caller's to drop.
  virtual void seek(const TopicPartitionOffset& to) = 0;
  /// First and last+1 offset that the broker has, as far as known now; nothing when it is not.
  virtual std::optional<std::pair<Offset, Offset>> bounds(const TopicPartition& of,
                                                          std::chrono::milliseconds timeout) = 0;
  /// Leaves the group; on_revoked is called from within. No other call afterwards.
  virtual void close() = 0;
};

/// Produces; thread-safe.
class BrokerProducer {
 public:
  virtual ~BrokerProducer() = default;
  struct Sent {
    std::int32_t partition = 0;
    Offset offset = 0;
  };
  /// Returns when the broker has acknowledged the record (all in-sync replicas). `message.partition` < 0: by the key.
  /// `message.offset` is ignored. Throws BrokerError with the topic and what to do.
  virtual Sent send(const OwnedMessage& message) = 0;
};

struct TopicInfo {
  std::int32_t partitions = 0;
  std::optional<std::chrono::milliseconds> retention;  ///< nothing: not known; max(): kept for ever
  /// For how long records are gathered into one segment, at most; the whole of it goes at once, when its youngest record may.
  std::optional<std::chrono::milliseconds> segment{};
};

class Broker {
 public:
  virtual ~Broker() = default;
  virtual std::unique_ptr<BrokerConsumer> open_consumer() = 0;
  virtual std::shared_ptr<BrokerProducer> open_producer() = 0;
  /// Nothing when the topic does not exist. Throws BrokerError when no broker answers within `timeout`.
  virtual std::optional<TopicInfo> describe(const std::string& topic, std::chrono::milliseconds timeout) = 0;
};

}  // namespace turnstile
