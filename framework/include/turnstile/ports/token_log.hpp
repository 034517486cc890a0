#pragma once
// The token service's interface to a log: a sequence of records that all members of a domain read in the same order.
// adapters/kafka implements it with a topic of one partition. Tests and the simulator use an implementation in memory.

#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "turnstile/error.hpp"

namespace turnstile {

/// The log was damaged: records are missing, or the log was deleted. It does not recover by itself. what() tells what
/// to do.
struct TokenLogBroken : Error {
  using Error::Error;  ///< where the log is not damaged, but gone: token_log_deleted
  /// Records are missing or damaged.
  explicit TokenLogBroken(const std::string& message) : Error(Code::token_log_damaged, message) {}
};

/// Records that were not read yet were deleted. If a newer snapshot covers them, a reader continues from there.
struct TokenLogTrimmed : TokenLogBroken {
  /// The code is token_log_trimmed.
  explicit TokenLogTrimmed(const std::string& message) : TokenLogBroken(Code::token_log_trimmed, message) {}
};

}  // namespace turnstile

namespace turnstile::ports {

/// A token log. One thread at a time makes all calls, except wake() and known_end(). Positions are those of records, from 0. A position
/// without a record (Kafka's transaction markers) is read as a record without bytes.
class TokenLog {
 public:
  /// One record of the log.
  struct Record {
    std::int64_t position = 0;  ///< increases by 1 from record to record
    std::string bytes;          ///< as written, by any program
    std::int64_t time_ms = 0;   ///< since 1970, by any clock; for people. 0: unknown
  };

  /// The stored state of the log at some position.
  struct Snapshot {
    std::int64_t number = 0;  ///< increases from each stored snapshot to the next
    std::string bytes;        ///< the snapshot
  };
  /// As `before`: the newest snapshot.
  static constexpr std::int64_t kNewest = std::numeric_limits<std::int64_t>::max();

  virtual ~TokenLog() = default;
  /// The newest snapshot with a number below `before`. Absent: there is none. Throws BrokerError, also on a timeout: it
  /// never reports "none" for "not yet".
  virtual std::optional<Snapshot> snapshot(std::int64_t before = kNewest) = 0;
  /// The number of parts that can have snapshots. It is larger than the number of the log's parts if an earlier log of
  /// this name had more. Throws BrokerError.
  virtual std::uint32_t snapshot_parts() { return 1; }
  /// The newest snapshot of any part below snapshot_parts(). Throws as snapshot().
  virtual std::optional<Snapshot> snapshot_of([[maybe_unused]] std::uint32_t part) { return {}; }
  /// The first position in the log. Throws BrokerError.
  virtual std::int64_t begin() = 0;
  /// The position that the next record will have. Throws BrokerError.
  virtual std::int64_t end() = 0;
  /// The position that the next record will have, as known from the last read; it asks nobody. Absent: unknown. Any
  /// thread may call it.
  [[nodiscard]] virtual std::optional<std::int64_t> known_end() const { return {}; }
  /// Reading continues from here. Call it before the first read(), and after TokenLogTrimmed. Throws BrokerError.
  virtual void seek(std::int64_t position) = 0;
  /// Waits until there are records, wake() is called, or `timeout` is over. Returns the records, perhaps none. While
  /// the log is unavailable there are none. Throws TokenLogTrimmed (seek() may follow), TokenLogBroken, and BrokerError
  /// for an error that does not recover by itself.
  virtual std::vector<Record> read(std::chrono::milliseconds timeout) = 0;
  /// Appends records in the order of the calls; does not wait. Reading and failed() show the result.
  virtual void append(std::string bytes) = 0;
  /// True if an append has failed or timed out since the last call. The log does not retry it, and it may still be
  /// written later. New appends are written after any earlier record that is still in flight.
  virtual bool failed() = 0;
  /// Why an append failed last, for people.
  [[nodiscard]] virtual std::string why_failed() const = 0;
  /// Stores a snapshot of the log's state up to `position`, without waiting.
  virtual void save(std::int64_t position, std::string snapshot) = 0;
  /// The newest position whose snapshot this object knows to be stored; -1: none.
  [[nodiscard]] virtual std::int64_t saved() const = 0;
  /// No member needs the records below this position any more. It does not wait. Without the right to delete, nothing
  /// happens.
  virtual void trim(std::int64_t below) = 0;
  /// Ends a waiting read(). Any thread may call it.
  virtual void wake() noexcept = 0;
  /// Waits up to `timeout` until all appended records are written.
  virtual void flush(std::chrono::milliseconds timeout) = 0;
  /// "topic 'x' at host:9092", for messages.
  [[nodiscard]] virtual std::string name() const = 0;
};

}  // namespace turnstile::ports
