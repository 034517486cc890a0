#pragma once
// The basic value types of the framework. All are plain values, safe to copy between threads.

#include <array>
#include <chrono>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

/// Kafka handlers that are safe to run.
namespace turnstile {

/// Milliseconds since 1970, as in Kafka.
using Timestamp = std::chrono::sys_time<std::chrono::milliseconds>;

/// The position of a record in a partition of a data topic, as Kafka counts it: from 0; gaps are normal.
using Offset = std::int64_t;

/// A partition of a topic.
struct TopicPartition {
  std::string topic;           ///< the topic's name
  std::int32_t partition = 0;  ///< from 0
  /// Compares all members.
  auto operator<=>(const TopicPartition&) const = default;
};

/// The place of a record.
struct TopicPartitionOffset {
  TopicPartition at;  ///< the partition
  Offset offset = 0;  ///< in the partition
  /// Compares all members.
  auto operator<=>(const TopicPartitionOffset&) const = default;
};

/// "payments[3]": the form in which every log line and error names a partition.
std::string to_string(const TopicPartition& at);
/// "payments[3]@1042"
std::string to_string(const TopicPartitionOffset& at);

/// The 16 bytes by which the inbox identifies a message. A UUID is used unchanged. Any other id is hashed (SHA-256, cut
/// to 128 bits), so ids of any length and content fit (hazard: text-ids).
struct MessageId {
  std::array<std::uint8_t, 16> bytes{};  ///< a UUID's, or a hash's
  /// Compares the bytes.
  auto operator<=>(const MessageId&) const = default;
  /// The canonical text of a UUID, 36 characters.
  [[nodiscard]] std::string text() const;
  /// Makes an id of any text.
  [[nodiscard]] static MessageId from(std::string_view raw);
};

/// A handler's name ("charge") as the small integer that the database assigned. The name is the scope of an id: two
/// handlers can each take the same message once (hazard: id-scope).
struct HandlerId {
  std::int16_t value = 0;  ///< as in the table `handler`
  /// Compares the values.
  auto operator<=>(const HandlerId&) const = default;
};

/// The number of an ownership of a partition. It only grows. A transaction carries the epoch under which its messages
/// were assigned. The database rejects the transaction after a newer owner has incremented the epoch.
struct Epoch {
  std::int64_t value = 0;  ///< each new owner increments it
  /// Compares the values.
  auto operator<=>(const Epoch&) const = default;
};

/// What the database checks when a transaction commits: the row of (group, topic, partition), the epoch, and the
/// database's history.
struct Fence {
  std::int32_t slot = 0;  ///< the small integer of the row
  Epoch epoch;            ///< of the owner
  /// The history of the database in which the partition was claimed. The number changes with each start of the server,
  /// and differs on each other server (a promoted replica, a restored backup).
  /// A database with another history may have lost commits that were made under this fence. It therefore rejects the
  /// fence, and the partition is claimed again.
  std::int64_t history = 0;
  /// Compares all members.
  auto operator<=>(const Fence&) const = default;
};

/// How Turnstile makes the effect of a message happen once.
enum class Mode : std::uint8_t {
  at_least_once,  ///< limits, order and retries only: a message may take effect more than once
  transactional,  ///< inbox row, the handler's SQL and the commit in one PostgreSQL transaction
  leased,         ///< effects elsewhere: claimed, run outside of a transaction, then recorded as done
  by_offset,      ///< as transactional, for records without ids: a row for each partition, none for each message
  numbered,       ///< as by_offset, for producers that number their messages: one more row for each producer
};

/// Whether the inbox keeps an id of each message.
[[nodiscard]] constexpr bool keeps_ids(Mode mode) noexcept {
  return mode == Mode::transactional || mode == Mode::leased;
}
/// Whether records are counted, by offsets or by their producers' numbers, instead of being identified by ids.
[[nodiscard]] constexpr bool numbers_records(Mode mode) noexcept {
  return mode == Mode::by_offset || mode == Mode::numbered;
}
/// Whether handlers run in a transaction of PostgreSQL, which is rolled back if the partition has a new owner.
[[nodiscard]] constexpr bool has_transaction(Mode mode) noexcept {
  return mode == Mode::transactional || numbers_records(mode);
}

/// Where a failed message waits for its next attempt, and what that means for the messages behind it.
enum class DurableRetry : std::uint8_t {
  off,  ///< in the consumer's memory: the partition's offset waits for it
  /// In the database. The offset moves on, and later messages with its key wait behind it.
  later_messages_wait,
  /// In the database. The offset moves on, and later messages with its key overtake it.
  later_messages_pass,
};

/// What happens to a message (mode leased) whose lease ended without a result. It may have taken effect.
enum class UnknownPolicy : std::uint8_t {
  park,  ///< it is parked until an operator decides: `turnstile inbox unpark`
  /// It runs again. Correct if the other side drops repeated calls (ctx.idempotency_key(), ctx.claim_fence()).
  rerun,
};

/// What happens to a message that is older than the stored ids of its handler. It may have taken effect, and its id may
/// have been purged.
enum class HorizonPolicy : std::uint8_t {
  park,  ///< it is parked like a dead letter, and does not run
  run,   ///< it runs; correct if old timestamps do not mean old deliveries, as in an import of history
};

/// What happens to messages while PostgreSQL is unavailable (mode leased).
enum class StoreDownPolicy : std::uint8_t {
  wait,  ///< they wait: fail closed
  /// They run unclaimed: fail open. Duplicates take effect twice, unless the other side rejects them.
  run,
};

/// What happens to a message while its duplicate runs (mode leased), in this process or another. A record that is
/// delivered again while it still runs under its last owner is not its own duplicate: it waits.
enum class RunningPolicy : std::uint8_t {
  wait,   ///< it keeps its place until the other run has ended
  skip,   ///< it is settled at once; correct only if a failure of the other run does not matter
  retry,  ///< it is retried after a delay, and dead-lettered in the end
};

/// The order in which the messages of a partition run.
enum class Order : std::uint8_t {
  partition,  ///< one after another, in offset order
  key,        ///< messages of a key in offset order, different keys concurrently; without a key: any order
  none,       ///< any order
};

/// What happens to a message whose id has taken effect.
enum class DuplicatePolicy : std::uint8_t {
  skip,    ///< it is settled without an effect, and counted
  raise,   ///< it is an error: dead letter in a Consumer, `Duplicate` thrown from a PollLoop
  replay,  ///< it gets the first response again, byte for byte
};

}  // namespace turnstile

/// @cond
template <>
struct std::hash<turnstile::TopicPartition> {
  std::size_t operator()(const turnstile::TopicPartition& at) const noexcept {
    return std::hash<std::string>{}(at.topic) * 31 + static_cast<std::size_t>(at.partition);
  }
};
/// @endcond
