#pragma once
// Statements in libpq's pipeline: many are sent, and their results are read together (hazard: round-trips).
//
// Queued statements wait in memory until a chunk is full or finish() is called. Each chunk ends with a Sync, and never
// waits for more in the middle. The server counts idle-in-transaction time only after a Sync, so a process that is
// stopped between two chunks loses its locks in time (hazard: blocked-insert). An error skips the rest of its chunk and
// aborts the transaction, so the chunks after it change nothing either.

#include <deque>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "wire/arguments.hpp"
#include "wire/connection.hpp"

namespace turnstile::postgres {

/// The owner of a statement: the index of a message in its batch, or the caller.
using Owner = std::size_t;
inline constexpr Owner kCaller = std::numeric_limits<Owner>::max();
/// An error means that the open transaction is another than the expected.
inline constexpr Owner kIdentity = kCaller - 1;
/// Sent after the end of the transaction. An error means that the connection must not be used again.
inline constexpr Owner kReset = kCaller - 2;
inline constexpr bool is_message(Owner owner) noexcept { return owner < kReset; }

/// The author of a statement, and so of its errors. `check`: the framework, to find out what a handler has done.
enum class Author : std::uint8_t { framework, handler, check };

struct Failure {
  ServerError error;
  Owner owner = kCaller;
  Author author = Author::framework;
  bool stale_plan = false;  ///< a plan prepared in an earlier transaction no longer fits the table
  bool pooler = false;      ///< a pooler has dropped the prepared statement, or has another one of its name
};

struct Answers {
  std::vector<Result> kept;
  std::optional<Failure> failure;  ///< the first one
};

/// One thread at a time may use it.
class Pipeline {
 public:
  enum class Keep : std::uint8_t { nothing, text, binary };

  Pipeline(Connection& connection, bool prepare) : connection_(connection), prepare_(prepare) {}

  /// For the arguments of the statement that the next add() adds.
  ArgumentBlock& arguments() noexcept { return arguments_; }
  /// Queues a statement with the arguments added since the last one. Throws ConnectionLost when it sends a full chunk.
  void add(std::string_view sql, Owner owner, Keep keep = Keep::nothing, Author author = Author::framework);
  /// As add(), with its arguments. Throws SqlError for arguments that cannot be sent; nothing is queued then.
  void add(std::string_view sql, std::span<const Param> params, Owner owner, Keep keep = Keep::nothing,
           Author author = Author::framework);
  /// Sends everything, and reads all pending results. Throws ConnectionLost; `answers` then contains the earlier
  /// results.
  void finish(Answers& answers);
  /// How many statements were added whose results are not read yet.
  [[nodiscard]] std::size_t unread() const noexcept;
  /// Sends everything, and reads the results of the first `statements` only. Throws as finish().
  void finish_first(std::size_t statements, Answers& answers);
  /// Sends everything, and reads nothing. Throws ConnectionLost.
  void send_all() { send_chunk(); }
  /// A place in the queue.
  struct Mark {
    std::uint64_t sent = 0;
    std::size_t statements = 0, sql = 0, arguments = 0;
  };
  [[nodiscard]] Mark mark() const noexcept { return {chunks_, unsent_.size(), sql_.size(), queued_arguments_}; }
  /// Drops the statements that were queued since then. False if some of them may have been sent; then none is dropped.
  bool drop_since(const Mark& mark) noexcept;
  /// Drops the statements that were not sent yet.
  void drop_unsent() noexcept;
  /// Whether all statements were passed to libpq.
  [[nodiscard]] bool all_sent() const noexcept { return unsent_.empty(); }

  /// At the start of each transaction: drops the prepared statements if they are too many, or stale.
  void next_transaction();
  /// Whether next_transaction() drops prepared statements, unless statements of another transaction wait.
  [[nodiscard]] bool drops_prepared() const noexcept { return reset_prepared_; }
  void forget_prepared() noexcept { reset_prepared_ = true; }
  /// libpqxx uses the connection between two finish(): nothing is sent before finish().
  void hold(bool held) noexcept { held_ = held; }
  /// Leaves pipeline mode and non-blocking mode; the next finish() enters them again. All results must have been read.
  void leave() noexcept;

 private:
  struct Prepared {
    std::string name;
    enum class State : std::uint8_t { unknown, sent, ready } state = State::unknown;
    std::uint64_t transaction = 0;  ///< the transaction that prepared it
  };
  struct Unsent {
    Prepared* prepared = nullptr;  ///< null: parsed each time
    std::size_t sql = 0;           ///< where its text begins in sql_
    std::size_t first_argument = 0;
    std::size_t arguments = 0;
    Owner owner = kCaller;
    Keep keep = Keep::nothing;
    Author author = Author::framework;
    std::uint64_t transaction = 0;
  };
  struct Awaited {
    enum class Kind : std::uint8_t { parse, run, sync } kind;
    bool keep;
    Author author;
    Owner owner;
    Prepared* prepared;
    std::uint64_t transaction;
  };

  void send_chunk();
  void send(const Unsent& statement);
  void sent_or_fail(int ok);
  Prepared* find_prepared(std::string_view sql, ArgumentBlock::Mark from);
  void read(const Awaited& awaited, Answers& answers);
  void read_sync(const Awaited& awaited, Result result, Answers& answers);
  void note_failure(const Awaited& awaited, const PGresult* result, Answers& answers);

  Connection& connection_;
  const bool prepare_;
  bool held_ = false;
  bool reset_prepared_ = false;
  std::uint64_t transaction_ = 0;
  std::uint64_t names_ = 0;
  std::uint64_t chunks_ = 0;  ///< that were sent
  std::string key_;
  std::unordered_map<std::string, Prepared> prepared_;
  ArgumentBlock arguments_;
  std::size_t queued_arguments_ = 0;
  std::string sql_;
  std::vector<Unsent> unsent_;
  std::deque<Awaited> awaited_;
};

}  // namespace turnstile::postgres
