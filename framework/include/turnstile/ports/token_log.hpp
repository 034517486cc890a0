#pragma once
// What the token service needs of a log: one order of records that all members of a domain read alike. Implemented by
// adapters/kafka (a topic of one partition) and, for tests and the simulator's sake, in memory.

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "turnstile/error.hpp"

namespace turnstile {

/// The log is not what it was: records are missing, or it is gone. Nothing mends that but a person.
struct TokenLogBroken : Error {
  using Error::Error;
};

/// All calls from one thread, except wake().
class TokenLog {
 public:
  struct Record {
    std::int64_t position = 0;  ///< rises by one from record to record
    std::string bytes;          ///< whatever was written, by whomever
  };

  virtual ~TokenLog() = default;
  /// What is kept of the log's meaning, newest first; empty where nothing was ever saved. Throws BrokerError.
  virtual std::vector<std::string> snapshots() = 0;
  /// First position that the log still has. Throws BrokerError.
  virtual std::int64_t begin() = 0;
  /// Reading goes on from here.
  virtual void seek(std::int64_t position) = 0;
  /// Waits until there are records, wake() was called, or `timeout` is over. Throws TokenLogBroken.
  virtual std::vector<Record> read(std::chrono::milliseconds timeout) = 0;
  /// Appends, in the order of the calls; does not wait.
  virtual void append(std::string bytes) = 0;
  /// Whether something that was appended may not have been written, since it was last asked. What is appended from now on
  /// goes out anew, behind whatever is still on its way of what came before.
  virtual bool failed() = 0;
  /// Why appending failed last, for people.
  [[nodiscard]] virtual std::string why_failed() const = 0;
  /// Keeps a snapshot of what the log means up to `position`, without waiting.
  virtual void save(std::int64_t position, std::string snapshot) = 0;
  /// The newest position whose snapshot, by this object, is known to be kept; -1: none.
  [[nodiscard]] virtual std::int64_t saved() const = 0;
  /// What is below is needed by nobody any more.
  virtual void trim(std::int64_t below) = 0;
  virtual void wake() noexcept = 0;
  /// Waits until what was appended is written, at most so long.
  virtual void flush(std::chrono::milliseconds timeout) = 0;
  /// "topic 'x' at host:9092", for messages.
  [[nodiscard]] virtual std::string name() const = 0;
};

}  // namespace turnstile
