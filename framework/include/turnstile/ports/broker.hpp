#pragma once
// The framework's interface to a message broker. adapters/kafka and adapters/memory implement it; both pass the same
// contract suite.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "turnstile/message.hpp"

namespace turnstile::ports {

/// Whether Kafka allows this name for a topic: 1 to 249 letters, digits, '.', '_' and '-', and neither "." nor "..".
[[nodiscard]] bool is_topic_name(std::string_view name) noexcept;

/// A run of records of one partition, in offset order. It owns their bytes, and the views are valid as long as it
/// lives. Any thread may destroy it.
class Block {
 public:
  virtual ~Block() = default;
  /// The records, in offset order.
  [[nodiscard]] virtual std::span<const Message> messages() const noexcept = 0;
};

/// The committed offset of a group in a partition.
struct GroupOffset {
  Offset offset = 0;  ///< the next to be read
  /// A text that its member committed with it: UTF-8 without NUL. Kafka stores up to 4,096 bytes
  /// (offset.metadata.max.bytes). Other programs commit other texts, or none.
  std::string metadata{};

  bool operator==(const GroupOffset&) const = default;  ///< compares both
};

/// An offset to be committed, with its text.
struct OffsetCommit {
  TopicPartition at;       ///< the partition
  Offset offset = 0;       ///< the next to be read
  std::string metadata{};  ///< see GroupOffset
};

/// Where a partition ends.
struct PartitionEnd {
  Offset readable = 0;  ///< the offset after the last record that a consumer can read now
  /// The offset after its last record. It is higher than `readable` while a producer's transaction is open: with
  /// isolation.level=read_committed, consumers get no record from its first one on, also no record of other producers.
  Offset last = 0;

  bool operator==(const PartitionEnd&) const = default;  ///< compares both
};

/// Receives changes of the assignment and the results of commits, on the thread that calls BrokerConsumer::poll(),
/// commit() or close().
class AssignmentListener {
 public:
  virtual ~AssignmentListener() = default;
  /// The group assigned new partitions. The result names offsets to start from. Partitions that it does not name start
  /// at the group's committed offset, or where auto.offset.reset tells. It may call committed() of the consumer.
  virtual std::vector<TopicPartitionOffset> on_assigned(std::span<const TopicPartition> partitions) = 0;
  /// The partitions are revoked when this returns. `lost`: another member owns them already, so do not commit.
  virtual void on_revoked(std::span<const TopicPartition> partitions, bool lost) = 0;
  /// The result of offsets that were passed to commit(), once for each of them; commit() itself may call it. If not
  /// `committed`, only the caller can repeat them.
  virtual void on_commit_end(std::span<const TopicPartitionOffset> /*offsets*/, bool /*committed*/) {}
  /// An existing topic was deleted (`exists` is false), or a topic of that name exists again (then it is another
  /// topic). In between its partitions may stay assigned.
  virtual void on_topic_change(const std::string& /*topic*/, bool /*exists*/) {}
};

/// Tells other threads when records may have arrived at a consumer. Thread-safe. It may outlive the consumer.
class Arrivals {
 public:
  virtual ~Arrivals() = default;
  /// Waits until a partition may have records (true), or until wake() is called or `until` is over (false). It may
  /// return false too early. Records end the wait of one thread, and of no other one until listen() is called. While a
  /// thread waits here, they do not end BrokerConsumer::wait() and poll(), except a call that was made before.
  virtual bool wait(std::chrono::steady_clock::time_point until) = 0;
  /// The thread whose wait() returned true has taken the records: those that come from now on, or are there still, end a wait again.
  virtual void listen() noexcept = 0;
  /// Ends the waits of so many threads, of those that wait now or will do so later.
  virtual void wake(std::size_t threads) noexcept = 0;
};

/// A member of a consumer group. One thread at a time makes the calls, except wake() and ends().
class BrokerConsumer {
 public:
  virtual ~BrokerConsumer() = default;

  /// `listener` must outlive the consumer.
  virtual void subscribe(const std::vector<std::string>& topics, AssignmentListener& listener) = 0;
  /// Serves rebalances and errors, and waits as wait() does. Call it at least once in every max.poll.interval.
  /// Throws BrokerError if the broker refuses the consumer permanently: authentication, authorization, or a topic that
  /// never existed. The adapter logs temporary failures and retries.
  virtual void poll(std::chrono::milliseconds timeout) = 0;
  /// Waits until poll() has something to serve, a partition may have records, wake() is called, or `timeout` is over.
  /// Other threads may make other calls meanwhile, but not close().
  virtual void wait(std::chrono::milliseconds timeout) = 0;
  /// Whether poll() has something to serve, such as a rebalance, before further records are taken.
  virtual bool must_poll() = 0;
  /// The arrivals at this consumer. It returns the same object each time.
  virtual std::shared_ptr<Arrivals> arrivals() = 0;
  /// Up to `most` records that have arrived, without waiting. Null if there are none, or if the partition is not
  /// assigned.
  virtual std::unique_ptr<Block> take(const TopicPartition& from, std::size_t most) = 0;
  /// Ends the waiting poll() or wait(), or else the next one. Any thread may call it.
  virtual void wake() noexcept = 0;
  /// The group's committed offsets, in the order of `of`; absent if there is none. Waits up to `timeout`. Throws
  /// BrokerError.
  virtual std::vector<std::optional<GroupOffset>> committed(std::span<const TopicPartition> of,
                                                            std::chrono::milliseconds timeout) = 0;
  /// Commits offsets. `wait`: waits for the broker's answer, or up to some seconds. Never
  /// throws for a partition that is no longer assigned. The listener gets the result of each.
  virtual void commit(std::span<const OffsetCommit> offsets, bool wait) = 0;
  /// Reads an assigned partition again from this offset. The caller must drop the records that it took before.
  virtual void seek(const TopicPartitionOffset& to) = 0;
  /// For each of these partitions its first offset, and the offset after the last record that a consumer can read now;
  /// absent if the broker does not tell within `timeout`. A partition of which nothing can be told does not change the
  /// others' answers.
  virtual std::vector<std::optional<std::pair<Offset, Offset>>> bounds(std::span<const TopicPartition> of,
                                                                       std::chrono::milliseconds timeout) = 0;
  /// For each of these partitions the offset after its last record, also if no consumer can read that yet
  /// (PartitionEnd::last); absent as with bounds(). It may need a connection of its own: call it only where bounds()
  /// does not suffice.
  virtual std::vector<std::optional<Offset>> log_ends(std::span<const TopicPartition> of,
                                                      std::chrono::milliseconds timeout) = 0;
  /// For each of these partitions where it ends; absent if the broker does not tell within `timeout`, as with bounds().
  /// `last` is what the last fetch of the partition told. It may be too low if the partition is not assigned, or if its
  /// next record is below `readable`. Any thread may call it, but not during or after close().
  virtual std::vector<std::optional<PartitionEnd>> ends(std::span<const TopicPartition> of,
                                                        std::chrono::milliseconds timeout) = 0;
  /// For partitions of which ends() told nothing: for each a reason, in words that can follow "because", for example
  /// "broker 3, which leads it, does not answer". Empty if there is no such partition. Waits up to `timeout` for a
  /// broker that knows. Any thread may call it, but not during or after close().
  virtual std::vector<std::string> why_no_end(std::span<const TopicPartition> of,
                                              std::chrono::milliseconds timeout) = 0;
  /// Where reading began, if the group had no offset, or where a gap ends: between the last record taken and this
  /// offset there is no record and never will be (markers of transactions). Absent if nothing of that is known. A gap
  /// at a partition's end is found some seconds after the last record.
  virtual std::optional<Offset> read_up_to(const TopicPartition& of) = 0;
  /// Leaves the group, and waits up to some seconds. It calls on_revoked. No other call may follow.
  virtual void close() = 0;
  /// As soon as `hurry` returns true, commit() and close() each wait only as long as a round trip needs (500 ms). The
  /// thread that calls them calls `hurry`.
  virtual void hurry_when(std::function<bool()> hurry) = 0;
};

/// Produces single records. Thread-safe.
class BrokerProducer {
 public:
  virtual ~BrokerProducer() = default;
  /// The place of a record that the broker stored.
  struct Sent {
    std::int32_t partition = 0;  ///< of the topic
    Offset offset = 0;           ///< in the partition
  };
  /// Returns once all in-sync replicas have the record. If `message.partition` < 0, the key decides the partition.
  /// `message.offset` is ignored. Throws RecordNotStored (record_not_stored.hpp), or BrokerError if it may be stored.
  virtual Sent send(const OwnedMessage& message) = 0;
};

/// Produces many records at once. Each is retried until the broker accepts it or refuses it permanently. One thread
/// makes all calls, except cancel().
class BrokerSender {
 public:
  virtual ~BrokerSender() = default;
  /// The result for a record.
  struct Fate {
    /// The kind of result.
    enum class Kind : std::uint8_t {
      sent,  ///< all in-sync replicas have it
      /// This send() did not store it, and a repetition will not be accepted (too large, no such topic, no right to
      /// write). `why` tells what to do. The exception: librdkafka repeated it at a new leader, which has it from the old one,
      /// and refuses it by a setting that was changed meanwhile. An earlier send() whose fate was unknown may have stored it.
      refused,
      /// The broker may have it: given up by cancel(), the sender ended, or refused when librdkafka repeated a request
      /// that was not answered. Send it again.
      unknown,
    };
    Kind kind = Kind::unknown;  ///< the kind of result
    std::string why{};          ///< refused, unknown: the reason
  };
  /// Returns when each record has its fate, in the order of `records`. Records of one key arrive in order: after a
  /// record of unknown fate, the following records of its key are unknown too. A refused record changes nothing for the
  /// others: they are sent, and arrive in order, also if the broker refuses them together with it at first. If `partition`
  /// < 0, the key decides the partition. Waits as long as no broker answers. Never throws for an error of the broker.
  virtual std::vector<Fate> send(std::span<const OwnedMessage> records) = 0;
  /// send() gives up the records that are not acknowledged yet, and so do later calls. Call it from another thread.
  virtual void cancel() noexcept = 0;
};

/// The properties of a topic.
struct TopicInfo {
  std::int32_t partitions = 0;                         ///< how many
  std::optional<std::chrono::milliseconds> retention;  ///< absent: unknown; max(): forever
  /// The longest time for which records are collected into one segment. Kafka deletes a segment only as a whole, when
  /// its youngest record is old enough.
  std::optional<std::chrono::milliseconds> segment{};
  /// `retention` absent: the reason, and what to do, for an error text. It ends without a period. Empty if the broker
  /// has no such setting (in memory, librdkafka's mock).
  std::string why_unknown{};
};

/// A message broker: the source and the destination of messages. Thread-safe.
class Broker {
 public:
  virtual ~Broker() = default;
  /// A member of the group in the settings.
  virtual std::unique_ptr<BrokerConsumer> open_consumer() = 0;
  /// For single records: dead letters and replies.
  virtual std::shared_ptr<BrokerProducer> open_producer() = 0;
  /// For many records at once: the outbox, and programs that send messages.
  virtual std::unique_ptr<BrokerSender> open_sender() = 0;
  /// Absent if the topic does not exist. Throws BrokerError if no broker answers within `timeout`.
  virtual std::optional<TopicInfo> describe(const std::string& topic, std::chrono::milliseconds timeout) = 0;
};

}  // namespace turnstile::ports
