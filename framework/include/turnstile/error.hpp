#pragma once
// Errors. What a person can mend says what was wrong, where, and what to do; what the runtime can mend by
// itself (StoreUnavailable, StoreBusy, Fenced, CommitInDoubt) is a type of its own so that it is never matched
// by text.

#include <stdexcept>
#include <string>
#include <vector>

#include "turnstile/types.hpp"

namespace turnstile {

struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Wrong settings: all of them at once. `what()` holds one line for each.
struct ConfigError : Error {
  /// One text for each problem.
  explicit ConfigError(std::vector<std::string> problems);
  std::vector<std::string> problems;  ///< one line each
};

/// The database's schema is missing, older, newer or changed. `what()` names the command that puts it right.
struct SchemaError : Error {
  using Error::Error;
};

/// The store of ids cannot be reached, or refuses us. Nothing was decided; try again later.
struct StoreUnavailable : Error {
  using Error::Error;
};

/// The store answered, and refused a statement of Turnstile's own: a damaged index, a trigger or constraint that was added to its tables.
/// No message is to blame. `sqlstate` is five characters.
struct StoreFailed : StoreUnavailable {
  /// `state` is the SQLSTATE.
  StoreFailed(const std::string& message, std::string state) : StoreUnavailable(message), sqlstate(std::move(state)) {}
  std::string sqlstate;  ///< five characters
};

/// A handler ended the transaction that Turnstile had opened for its batch. Turnstile does not commit it, and a consumer stops: which of
/// the batch's statements are in effect is not known.
struct TransactionEnded : Error {
  using Error::Error;
};

/// A lock wait, a deadlock or a serialization failure: the transaction was rolled back, and the whole of it may be
/// tried again (hazard: blocked-insert, isolation-level, insert-order).
struct StoreBusy : Error {
  using Error::Error;
};

/// A newer owner has bumped the partition's epoch: this process must drop what it has of that partition.
struct Fenced : Error {
  using Error::Error;
};

/// Thrown by a PollLoop: the database may have lost what it had committed of a partition. It was restarted, failed over or restored;
/// or the first message lies above the database's watermark, because the last owner ended without revoked(). Seek the partition to
/// `from` (see PollLoop on auto.offset.reset): what the database still has is settled as a duplicate. Then call PollLoop::revoked().
struct ReadAgain : Error {
  /// `where` is the position to seek to.
  ReadAgain(const std::string& message, TopicPartitionOffset where) : Error(message), from(std::move(where)) {}
  TopicPartitionOffset from;  ///< the position to seek to
};

/// COMMIT was sent and its answer never came: unknown, not failed (hazard: commit-in-doubt). Look it up, then decide.
struct CommitInDoubt : Error {
  using Error::Error;
};

/// A statement that the database refused. `sqlstate` is five characters; `what()` may hold the server's primary
/// message but never its DETAIL, which can hold ids and payloads (hazard: error-detail).
struct SqlError : Error {
  /// `state` is the SQLSTATE.
  SqlError(const std::string& message, std::string state) : Error(message), sqlstate(std::move(state)) {}
  std::string sqlstate;  ///< five characters
};

/// A deferred statement failed; `message_index` is the place in the batch of the message that queued it.
struct DeferredSqlError : SqlError {
  /// `index` is the place in the batch.
  DeferredSqlError(const std::string& message, std::string state, std::size_t index)
      : SqlError(message, std::move(state)), message_index(index) {}
  std::size_t message_index;  ///< the place in the batch of the message that queued the statement
};

/// Kafka refused or could not be reached. `what()` says which broker, topic or right, and what to do.
struct BrokerError : Error {
  using Error::Error;
};

/// This process cannot continue, and no waiting mends it: the token log is gone or damaged, say. `what()` says what to do before it
/// is started again.
struct Halted : Error {
  using Error::Error;
};

/// A response of more bytes than the topic's max_response.
struct ResponseTooLarge : Error {
  using Error::Error;
};

/// Raised for an id that was seen before, where the policy is `raise`.
struct Duplicate : Error {
  using Error::Error;
};

}  // namespace turnstile
