#pragma once
// Errors. An error that a person can fix says what is wrong, where, and what to do. Turnstile recovers from some by itself
// (StoreUnavailable, StoreBusy, Fenced, CommitInDoubt); those are types of their own, so that no code matches their text.
// Each has a Code, which docs/operations/runbook.md explains.

#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

#include "turnstile/code.hpp"
#include "turnstile/types.hpp"

namespace turnstile {

/// The base of all. Its message is for a person, its code for a runbook and for programs.
struct Error : std::runtime_error {
  /// `code` names the situation; `message` says what happened, where, and what to do.
  Error(Code code, const std::string& message) : std::runtime_error(message), code_(code) {}
  /// The situation, as docs/operations/runbook.md explains it.
  [[nodiscard]] Code code() const noexcept { return code_; }

 private:
  Code code_;
};

/// The code of an Error; `otherwise` for any other exception.
[[nodiscard]] Code code_of(const std::exception& error, Code otherwise = Code::unexpected) noexcept;

/// Wrong settings: all of them at once. `what()` holds one line for each.
struct ConfigError : Error {
  /// One text for each problem.
  explicit ConfigError(std::vector<std::string> problems);
  std::vector<std::string> problems;  ///< one line each
};

/// The database's schema is missing, older, newer or changed. `what()` names the command that puts it right.
struct SchemaError : Error {
  using Error::Error;  ///< schema_outdated, schema_newer, migration_changed, …
};

/// The store of ids cannot be reached, or refuses us. Nothing was decided; try again later.
struct StoreUnavailable : Error {
  using Error::Error;  ///< where PostgreSQL answers, and a person must act: store_permission_denied, store_read_only, …
  /// PostgreSQL does not answer.
  explicit StoreUnavailable(const std::string& message) : Error(Code::store_unavailable, message) {}
};

/// The store answered, and refused a statement of Turnstile's own: a damaged index, a trigger or constraint that was added to its tables.
/// No message is to blame. `sqlstate` is five characters.
struct StoreFailed : StoreUnavailable {
  /// `state` is the SQLSTATE.
  StoreFailed(const std::string& message, std::string state)
      : StoreUnavailable(Code::store_failed, message), sqlstate(std::move(state)) {}
  std::string sqlstate;  ///< five characters
};

/// A handler ended the transaction that Turnstile had opened for its batch. Turnstile does not commit it, and a consumer stops: which of
/// the batch's statements are in effect is not known.
struct TransactionEnded : Error {
  /// The code is transaction_ended.
  explicit TransactionEnded(const std::string& message) : Error(Code::transaction_ended, message) {}
};

/// A lock wait, a deadlock or a serialization failure: the transaction was rolled back, and the whole of it may be
/// tried again (hazard: blocked-insert, isolation-level, insert-order).
struct StoreBusy : Error {
  /// The code is store_busy.
  explicit StoreBusy(const std::string& message) : Error(Code::store_busy, message) {}
};

/// A newer owner has bumped the partition's epoch: this process must drop what it has of that partition.
struct Fenced : Error {
  /// The code is partition_fenced.
  explicit Fenced(const std::string& message) : Error(Code::partition_fenced, message) {}
};

/// Thrown by a PollLoop: the database may have lost what it had committed of a partition. It was restarted, failed over or restored;
/// or the first message lies above the database's watermark, because the last owner ended without revoked(). Seek the partition to
/// `from` (see PollLoop on auto.offset.reset): what the database still has is settled as a duplicate. Then call PollLoop::revoked().
struct ReadAgain : Error {
  /// `where` is the position to seek to.
  ReadAgain(const std::string& message, TopicPartitionOffset where)
      : Error(Code::read_again, message), from(std::move(where)) {}
  TopicPartitionOffset from;  ///< the position to seek to
};

/// COMMIT was sent and its answer never came: unknown, not failed (hazard: commit-in-doubt). Look it up, then decide.
struct CommitInDoubt : Error {
  /// The code is commit_in_doubt.
  explicit CommitInDoubt(const std::string& message) : Error(Code::commit_in_doubt, message) {}
};

/// A statement that the database refused. `sqlstate` is five characters; `what()` may hold the server's primary
/// message but never its DETAIL, which can hold ids and payloads (hazard: error-detail).
struct SqlError : Error {
  /// `state` is the SQLSTATE.
  SqlError(const std::string& message, std::string state)
      : Error(Code::sql_error, message), sqlstate(std::move(state)) {}
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
  using Error::Error;  ///< kafka_unavailable, kafka_permission_denied, topic_missing, …
};

/// This process cannot continue, and no waiting mends it: the token log is gone or damaged, say. `what()` says what to do before it
/// is started again.
struct Halted : Error {
  using Error::Error;  ///< halted, or too_many_dead_in_a_row
};

/// A response of more bytes than the topic's max_response.
struct ResponseTooLarge : Error {
  /// The code is response_too_large.
  explicit ResponseTooLarge(const std::string& message) : Error(Code::response_too_large, message) {}
};

/// Raised for an id that was seen before, where the policy is `raise`.
struct Duplicate : Error {
  /// The code is duplicate.
  explicit Duplicate(const std::string& message) : Error(Code::duplicate, message) {}
};

}  // namespace turnstile
