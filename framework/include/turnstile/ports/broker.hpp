#pragma once
// What the framework needs of a message broker. Implemented by adapters/kafka and adapters/memory; both pass the same
// contract suite.

#include <chrono>
#include <cstdint>
#include <functional>
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
  /// The records, in offset order.
  [[nodiscard]] virtual std::span<const Message> messages() const noexcept = 0;
};

/// Told of changes of the assignment and of what becomes of commits, on the thread that calls BrokerConsumer::poll(), commit() or
/// close().
class AssignmentListener {
 public:
  virtual ~AssignmentListener() = default;
  /// New partitions. The answer says where to start those that it names; the others start at the group's committed
  /// offset, or where auto.offset.reset says. May call committed() of the consumer.
  virtual std::vector<TopicPartitionOffset> on_assigned(std::span<const TopicPartition> partitions) = 0;
  /// They are taken away when this returns. `lost`: they already belong to somebody else, do not commit.
  virtual void on_revoked(std::span<const TopicPartition> partitions, bool lost) = 0;
  /// What became of offsets that commit() was given; told once for each of them, also from within commit(). Not `committed`: nobody
  /// repeats them but the caller.
  virtual void on_commit_end(std::span<const TopicPartitionOffset> /*offsets*/, bool /*committed*/) {}
  /// A topic that was there is there no more (it was deleted), or is there again (then it is another topic of that name). Its
  /// partitions may stay assigned meanwhile.
  virtual void on_topic_change(const std::string& /*topic*/, bool /*exists*/) {}
};

/// One member of a consumer group. All calls from one thread, except wake().
class BrokerConsumer {
 public:
  virtual ~BrokerConsumer() = default;

  /// `listener` must outlive the consumer.
  virtual void subscribe(const std::vector<std::string>& topics, AssignmentListener& listener) = 0;
  /// Serves rebalances and errors, then waits until a partition may have records, wake() was called, or `timeout` is
  /// over. Must be called at least every max.poll.interval. Throws BrokerError when the broker refuses us permanently
  /// (authentication, authorization, a topic that never was there); passing failures are logged by the adapter and retried.
  virtual void poll(std::chrono::milliseconds timeout) = 0;
  /// At most `most` records that are there, without waiting; null when there are none, or when the partition is not ours.
  virtual std::unique_ptr<Block> take(const TopicPartition& from, std::size_t most) = 0;
  /// From another thread: ends a waiting poll().
  virtual void wake() noexcept = 0;
  /// The group's committed offsets (next to be read), in the order asked; nothing where there is none. Waits at most
  /// `timeout`; throws BrokerError.
  virtual std::vector<std::optional<Offset>> committed(std::span<const TopicPartition> of,
                                                       std::chrono::milliseconds timeout) = 0;
  /// Commits next-to-be-read offsets. `wait`: until the broker has answered, or for some seconds. Never throws for a partition
  /// that is no longer ours. The listener is told what became of each.
  virtual void commit(std::span<const TopicPartitionOffset> offsets, bool wait) = 0;
  /// Reads an assigned partition again from there. Records taken before are the caller's to drop.
  virtual void seek(const TopicPartitionOffset& to) = 0;
  /// First and last+1 offset that the broker has, as far as known now; nothing when it is not.
  virtual std::optional<std::pair<Offset, Offset>> bounds(const TopicPartition& of,
                                                          std::chrono::milliseconds timeout) = 0;
  /// Up to where the partition was read, once its end was reached: between the last record taken and that offset there is none, and
  /// never will be (what transactions leave behind). Nothing while that is not known.
  virtual std::optional<Offset> read_up_to(const TopicPartition& of) = 0;
  /// Leaves the group, waiting for some seconds at most; on_revoked is called from within. No other call afterwards.
  virtual void close() = 0;
  /// From now on commit() and close() each wait no longer than a round trip needs (500 ms) once `hurry` says so; it is called on the thread
  /// that calls them.
  virtual void hurry_when(std::function<bool()> hurry) = 0;
};

/// Produces; thread-safe.
class BrokerProducer {
 public:
  virtual ~BrokerProducer() = default;
  /// Where the broker has put a record.
  struct Sent {
    std::int32_t partition = 0;  ///< of the topic
    Offset offset = 0;           ///< in the partition
  };
  /// Returns when the broker has acknowledged the record (all in-sync replicas). `message.partition` < 0: by the key.
  /// `message.offset` is ignored. Throws BrokerError with the topic and what to do.
  virtual Sent send(const OwnedMessage& message) = 0;
};

/// Produces many records at once, each to be tried until the broker takes it or refuses it for good. One caller at a time, but for
/// cancel().
class BrokerSender {
 public:
  virtual ~BrokerSender() = default;
  /// What became of a record.
  struct Fate {
    /// What became of it.
    enum class Kind : std::uint8_t {
      sent,     ///< all in-sync replicas have it
      refused,  ///< it will never be taken (too large, no such topic, no right to write); `why` says what to do
      unknown,  ///< given up by cancel(), or with the whole sender: send it again
    };
    Kind kind = Kind::unknown;  ///< what became of it
    std::string why{};          ///< refused, unknown: the reason
  };
  /// Returns when each has its fate, in their order. Those of one key that are sent arrive in their order: what follows one
  /// whose fate is unknown is unknown, too. `partition` < 0: by the key. Waits as long as no broker answers. Never throws for what the
  /// broker does.
  virtual std::vector<Fate> send(std::span<const OwnedMessage> records) = 0;
  /// From another thread: send() gives up what is not acknowledged yet, and so do later calls.
  virtual void cancel() noexcept = 0;
};

/// What a topic is like.
struct TopicInfo {
  std::int32_t partitions = 0;                         ///< how many
  std::optional<std::chrono::milliseconds> retention;  ///< nothing: not known; max(): kept for ever
  /// For how long records are gathered into one segment, at most; the whole of it goes at once, when its youngest record may.
  std::optional<std::chrono::milliseconds> segment{};
};

/// Where messages come from and go to. Thread-safe.
class Broker {
 public:
  virtual ~Broker() = default;
  /// A member of the group that the settings name.
  virtual std::unique_ptr<BrokerConsumer> open_consumer() = 0;
  /// For single records: dead letters and replies.
  virtual std::shared_ptr<BrokerProducer> open_producer() = 0;
  /// For many records at once: the outbox, and programs that send.
  virtual std::unique_ptr<BrokerSender> open_sender() = 0;
  /// Nothing when the topic does not exist. Throws BrokerError when no broker answers within `timeout`.
  virtual std::optional<TopicInfo> describe(const std::string& topic, std::chrono::milliseconds timeout) = 0;
};

}  // namespace turnstile
