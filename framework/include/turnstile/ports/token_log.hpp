#pragma once
// What the token service needs of a log: one order of records that all members of a domain read alike. Implemented by
// adapters/kafka (a topic of one partition) and, for tests and the simulator's sake, in memory.

#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "turnstile/error.hpp"

namespace turnstile {

/// The log is not what it was: records are missing, or it is gone. Nothing mends that but a person; what() says what to do.
struct TokenLogBroken : Error {
  using Error::Error;
};

/// Records that were not read yet were deleted. Where a newer snapshot stands for them, a reader goes on from there.
struct TokenLogTrimmed : TokenLogBroken {
  using TokenLogBroken::TokenLogBroken;
};

/// All calls from one thread at a time, except wake(). Positions are those of records, from 0 on; what was never written at one (Kafka's
/// transaction markers) is a record without bytes.
class TokenLog {
 public:
  /// One record of the log.
  struct Record {
    std::int64_t position = 0;  ///< rises by one from record to record
    std::string bytes;          ///< whatever was written, by whomever
    std::int64_t time_ms = 0;   ///< since 1970, by whose clock it may be; for people. 0: unknown
  };

  /// What was kept of the log's meaning at some position.
  struct Snapshot {
    std::int64_t number = 0;  ///< rises from each that was kept to the next
    std::string bytes;        ///< the snapshot
  };
  /// As `before`: the newest snapshot there is.
  static constexpr std::int64_t kNewest = std::numeric_limits<std::int64_t>::max();

  virtual ~TokenLog() = default;
  /// The newest snapshot with a number below `before`; nothing: there is none. Throws BrokerError, also when it was not there in time:
  /// "none" is never said for "not yet".
  virtual std::optional<Snapshot> snapshot(std::int64_t before = kNewest) = 0;
  /// First position that the log still has. Throws BrokerError.
  virtual std::int64_t begin() = 0;
  /// The position that the next record will have. Throws BrokerError.
  virtual std::int64_t end() = 0;
  /// Reading goes on from here; to be called before the first read(), and after TokenLogTrimmed. Throws BrokerError.
  virtual void seek(std::int64_t position) = 0;
  /// Waits until there are records, wake() was called, or `timeout` is over; then what there is, perhaps nothing. While the log is out of
  /// reach there is nothing. Throws TokenLogTrimmed (seek() may follow), TokenLogBroken, and BrokerError for what no waiting mends.
  virtual std::vector<Record> read(std::chrono::milliseconds timeout) = 0;
  /// Appends, in the order of the calls; does not wait. What becomes of it is seen by reading, and in failed().
  virtual void append(std::string bytes) = 0;
  /// Whether something that was appended may not have been written, since it was last asked: it is not written again by itself, and may
  /// yet be written later. What is appended from now on goes out anew, behind whatever is still on its way of what came before.
  virtual bool failed() = 0;
  /// Why appending failed last, for people.
  [[nodiscard]] virtual std::string why_failed() const = 0;
  /// Keeps a snapshot of what the log means up to `position`, without waiting.
  virtual void save(std::int64_t position, std::string snapshot) = 0;
  /// The newest position whose snapshot, by this object, is known to be kept; -1: none.
  [[nodiscard]] virtual std::int64_t saved() const = 0;
  /// What is below is needed by nobody any more. Does not wait; where it is not allowed, nothing happens.
  virtual void trim(std::int64_t below) = 0;
  /// From any thread: ends a read() that waits.
  virtual void wake() noexcept = 0;
  /// Waits until what was appended is written, at most so long.
  virtual void flush(std::chrono::milliseconds timeout) = 0;
  /// "topic 'x' at host:9092", for messages.
  [[nodiscard]] virtual std::string name() const = 0;
};

}  // namespace turnstile
