#pragma once
// Errors. An error that a person can fix names the thing that failed, the cause and the remedy. Turnstile recovers from
// some errors by itself (StoreUnavailable, StoreBusy, Fenced, CommitInDoubt). Those have types of their own, so that no
// code matches their text. Each error has a Code, which docs/operations/runbook.md explains.

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

/// The database's schema is missing, older, newer or changed. `what()` names the command that corrects it.
struct SchemaError : Error {
  using Error::Error;  ///< schema_outdated, schema_newer, migration_changed, …
};

/// The store is unavailable, or refuses this process. Nothing was decided. Try again later.
struct StoreUnavailable : Error {
  using Error::Error;  ///< where PostgreSQL answers, and a person must act: store_permission_denied, store_read_only, …
  /// PostgreSQL does not answer.
  explicit StoreUnavailable(const std::string& message) : Error(Code::store_unavailable, message) {}
};

/// The store refused a statement of Turnstile itself, for example because of a damaged index, or of a trigger or
/// constraint that was added to its tables. No message is the cause. `sqlstate` has five characters.
struct StoreFailed : StoreUnavailable {
  /// `state` is the SQLSTATE.
  StoreFailed(const std::string& message, std::string state)
      : StoreUnavailable(Code::store_failed, message), sqlstate(std::move(state)) {}
  std::string sqlstate;  ///< five characters
};

/// A handler ended the transaction that Turnstile had opened for its batch. Turnstile does not commit, and a consumer
/// stops, because it is unknown which of the batch's statements are in effect.
struct TransactionEnded : Error {
  /// The code is transaction_ended.
  explicit TransactionEnded(const std::string& message) : Error(Code::transaction_ended, message) {}
};

/// A lock wait, a deadlock or a serialization failure. The transaction was rolled back, and may be repeated as a whole
/// (hazard: blocked-insert, isolation-level, insert-order).
struct StoreBusy : Error {
  /// The code is store_busy.
  explicit StoreBusy(const std::string& message) : Error(Code::store_busy, message) {}
};

/// A newer owner has incremented the partition's epoch. This process must drop its messages of that partition.
struct Fenced : Error {
  /// The code is partition_fenced.
  explicit Fenced(const std::string& message) : Error(Code::partition_fenced, message) {}
};

/// A PollLoop throws it if the database may have lost commits of a partition: the database was restarted, failed over
/// or restored. It also throws it if the first message lies above the database's watermark, because the last owner
/// ended without revoked(), or below what the handler has done in mode by_offset or numbered before it got another mode.
/// Seek the partition to `from` (see PollLoop on auto.offset.reset), and then call
/// PollLoop::revoked(). Messages that the database still has are settled as duplicates.
struct ReadAgain : Error {
  /// `where` is the position to seek to.
  ReadAgain(const std::string& message, TopicPartitionOffset where)
      : Error(Code::read_again, message), from(std::move(where)) {}
  TopicPartitionOffset from;  ///< the position to seek to
};

/// COMMIT was sent, and its answer was lost: it may have been committed (hazard: commit-in-doubt). Find out whether it
/// was, then decide.
struct CommitInDoubt : Error {
  /// The code is commit_in_doubt.
  explicit CommitInDoubt(const std::string& message) : Error(Code::commit_in_doubt, message) {}
};

/// The database refused a statement. `sqlstate` is five characters. `what()` may contain the server's primary
/// message, but never its DETAIL, which can contain ids and payloads (hazard: error-detail).
struct SqlError : Error {
  /// `state` is the SQLSTATE.
  SqlError(const std::string& message, std::string state)
      : Error(Code::sql_error, message), sqlstate(std::move(state)) {}
  std::string sqlstate;  ///< five characters
};

/// A deferred statement failed. `message_index` is the place in the batch of the message that queued it.
struct DeferredSqlError : SqlError {
  /// `index` is the place in the batch.
  DeferredSqlError(const std::string& message, std::string state, std::size_t index)
      : SqlError(message, std::move(state)), message_index(index) {}
  std::size_t message_index;  ///< the place in the batch of the message that queued the statement
};

/// Kafka refused a request, or is unavailable. `what()` names the broker, topic or right, and what to do.
struct BrokerError : Error {
  using Error::Error;  ///< kafka_unavailable, kafka_permission_denied, topic_missing, …
};

/// This process cannot continue, and waiting does not help: for example, the token log is deleted or damaged. `what()`
/// tells what to do before the process is started again.
struct Halted : Error {
  using Error::Error;  ///< halted, or too_many_dead_in_a_row
};

/// A response is larger than the topic's max_response.
struct ResponseTooLarge : Error {
  /// The code is response_too_large.
  explicit ResponseTooLarge(const std::string& message) : Error(Code::response_too_large, message) {}
};

/// The id was seen before, and the topic's policy is `raise`.
struct Duplicate : Error {
  /// The code is duplicate.
  explicit Duplicate(const std::string& message) : Error(Code::duplicate, message) {}
};

}  // namespace turnstile
