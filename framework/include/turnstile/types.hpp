#pragma once
// The small value types that the rest of the framework is written in. All are plain values, safe to copy
// between threads.

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

/// Kafka handlers that are safe to run.
namespace turnstile {

/// Position of a record in a partition of a data topic, as Kafka counts it (from 0, gaps are normal).
using Offset = std::int64_t;

/// A partition of a topic.
struct TopicPartition {
  std::string topic;           ///< the topic's name
  std::int32_t partition = 0;  ///< from 0
  /// Member by member.
  auto operator<=>(const TopicPartition&) const = default;
};

/// A record's place.
struct TopicPartitionOffset {
  TopicPartition at;  ///< the partition
  Offset offset = 0;  ///< in the partition
  /// Member by member.
  auto operator<=>(const TopicPartitionOffset&) const = default;
};

/// "payments[3]", the form in which every log line and error names a partition.
std::string to_string(const TopicPartition& at);
/// "payments[3]@1042"
std::string to_string(const TopicPartitionOffset& at);

/// The 16 bytes under which the inbox knows a message. A UUID is kept as it is; anything else is hashed
/// (SHA-256 cut to 128 bits), so ids of any length and content fit (hazard: text-ids).
struct MessageId {
  std::array<std::uint8_t, 16> bytes{};  ///< a UUID's, or a hash's
  /// Byte by byte.
  auto operator<=>(const MessageId&) const = default;
  /// Canonical UUID text, 36 characters.
  [[nodiscard]] std::string text() const;
  /// From whatever a person or a header wrote.
  [[nodiscard]] static MessageId from(std::string_view raw);
};

/// A handler's name ("charge") as the small integer that the database gave it. The name is the scope of an id:
/// two handlers may each see the same message once (hazard: id-scope).
struct HandlerId {
  std::int16_t value = 0;  ///< as the table `handler` has it
  /// By its value.
  auto operator<=>(const HandlerId&) const = default;
};

/// Number of an ownership of a partition; only grows. A transaction carries the epoch under which its messages
/// were assigned, and the database refuses it once a newer owner has bumped the number.
struct Epoch {
  std::int64_t value = 0;  ///< counts up with each owner
  /// By its value.
  auto operator<=>(const Epoch&) const = default;
};

/// What a transaction must prove to commit: the database's row for (group, topic, partition), the epoch, and the database's history.
struct Fence {
  std::int32_t slot = 0;  ///< the row's small integer
  Epoch epoch;            ///< of the owner
  /// The history of the database in which the partition was claimed: a number that is another one after each start of the server, and
  /// on each other server (a promoted replica, a restored backup). A database with another history may have lost what was committed under
  /// this fence, so it refuses the fence, and the partition is claimed again.
  std::int64_t history = 0;
  /// Member by member.
  auto operator<=>(const Fence&) const = default;
};

/// How the effect of a message is made to happen once.
enum class Mode : std::uint8_t {
  at_least_once,  ///< limits, order and retries only: a message may take effect more than once
  transactional,  ///< inbox row, the handler's SQL and the commit in one PostgreSQL transaction
  leased,         ///< effects elsewhere: claimed, run outside of any transaction, then recorded as done
  by_offset,      ///< as transactional, for records without ids: one row for each partition, none for each message
  numbered,       ///< as by_offset, for producers that number their messages: one more row for each producer
};

/// Whether the inbox keeps an id of each message.
[[nodiscard]] constexpr bool keeps_ids(Mode mode) noexcept {
  return mode == Mode::transactional || mode == Mode::leased;
}
/// Whether records are counted, by their offsets or by their producers, instead of being known by ids.
[[nodiscard]] constexpr bool numbers_records(Mode mode) noexcept {
  return mode == Mode::by_offset || mode == Mode::numbered;
}

/// What becomes of a message that was claimed (mode leased) and whose lease ended without a word: it may have taken effect, or not.
enum class UnknownPolicy : std::uint8_t {
  park,  ///< it waits for somebody to look and say: `turnstile inbox unpark`
  rerun,  ///< it runs again: right where the other side drops what it has seen (ctx.idempotency_key(), ctx.claim_fence())
};

/// What becomes of a message from before the time since when the handler's ids are all remembered: it may have taken effect, and its id been
/// forgotten.
enum class HorizonPolicy : std::uint8_t {
  park,  ///< it is put aside like a dead letter, and not run
  run,   ///< it runs: right where old times are no sign of old deliveries, as when history is imported
};

/// What becomes of messages while the store of ids does not answer (mode leased).
enum class StoreDownPolicy : std::uint8_t {
  wait,  ///< they wait: fail closed
  run,  ///< they run without being claimed: fail open. What was delivered twice takes effect twice, unless the other side refuses it
};

/// What becomes of a message while its duplicate runs (mode leased), in this process or another. A record that was delivered again while it
/// still runs under its last owner is no duplicate of itself: it waits.
enum class RunningPolicy : std::uint8_t {
  wait,   ///< it keeps its place until the other one has ended
  skip,   ///< it is settled at once: right only if it does not matter that the other one fails
  retry,  ///< as after a failure: again after a delay, and a dead letter in the end
};

/// In which order the messages of a partition run.
enum class Order : std::uint8_t {
  partition,  ///< one after another, as the partition has them
  key,        ///< same key in offset order, different keys side by side; records without a key are free
  none,       ///< any order
};

/// What becomes of a message whose id has taken effect.
enum class DuplicatePolicy : std::uint8_t {
  skip,    ///< a duplicate is settled without a word (counted)
  raise,   ///< a duplicate is an error: dead letter in a Consumer, `Duplicate` thrown from a PollLoop
  replay,  ///< a duplicate is answered as the first one was: its response is sent again, bit for bit
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
