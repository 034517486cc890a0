#pragma once
// Statements in libpq's pipeline: many go out, their answers are read together (hazard: round-trips).
//
// What is added waits in memory until a chunk is full or finish() is called. Each chunk ends with a Sync, and never waits
// for more in the middle: the server counts idle-in-transaction time only after a Sync, so a process that is stopped between
// two chunks loses its locks in time (hazard: blocked-insert). An error skips the rest of its chunk and the transaction is
// aborted, so the chunks after it change nothing either.

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

/// Whose statement it is: the place of a message in its batch, or the caller's own.
using Owner = std::size_t;
inline constexpr Owner kCaller = std::numeric_limits<Owner>::max();
/// An error means that the transaction is no longer the one that was opened.
inline constexpr Owner kIdentity = kCaller - 1;
/// Sent behind the end of the transaction. An error means that the connection cannot be used again.
inline constexpr Owner kReset = kCaller - 2;
inline constexpr bool is_message(Owner owner) noexcept { return owner < kReset; }

/// Who wrote a statement, and so whose fault an error in it is.
enum class Author : std::uint8_t { framework, handler };

struct Failure {
  ServerError error;
  Owner owner = kCaller;
  Author author = Author::framework;
  bool stale_plan = false;  ///< a plan prepared in an earlier transaction no longer fits the table
  bool pooler = false;      ///< a pooler has taken the prepared statement away, or has one of its name
};

struct Answers {
  std::vector<Result> kept;
  std::optional<Failure> failure;  ///< the first one
};

/// Used by one thread at a time.
class Pipeline {
 public:
  enum class Keep : std::uint8_t { nothing, text, binary };

  Pipeline(Connection& connection, bool prepare) : connection_(connection), prepare_(prepare) {}

  /// For the arguments of the statement that the next add() names.
  ArgumentBlock& arguments() noexcept { return arguments_; }
  /// Queues a statement with the arguments given since the last one. Throws ConnectionLost, when a full chunk goes out.
  void add(std::string_view sql, Owner owner, Keep keep = Keep::nothing, Author author = Author::framework);
  /// As add(), with its arguments. Throws SqlError for arguments that cannot be sent; nothing is queued then.
  void add(std::string_view sql, std::span<const Param> params, Owner owner, Keep keep = Keep::nothing,
           Author author = Author::framework);
  /// Sends all, and reads all that is owed. Throws ConnectionLost; `answers` then holds what came before.
  void finish(Answers& answers);
  /// Forgets what was not sent yet.
  void drop_unsent() noexcept;
  /// Everything that was added has been handed to libpq.
  [[nodiscard]] bool all_sent() const noexcept { return unsent_.empty(); }

  /// At the start of each transaction: throws the prepared statements away when they are too many, or stale.
  void next_transaction();
  void forget_prepared() noexcept { reset_prepared_ = true; }
  /// Somebody else speaks on the connection between two finish(): nothing goes out before finish().
  void hold(bool held) noexcept { held_ = held; }
  /// Leaves pipeline mode and non-blocking mode; the next finish() enters them again. Nothing may be unread.
  void leave() noexcept;

 private:
  struct Prepared {
    std::string name;
    enum class State : std::uint8_t { unknown, sent, ready } state = State::unknown;
    std::uint64_t transaction = 0;  ///< in which it was prepared
  };
  struct Unsent {
    Prepared* prepared = nullptr;  ///< null: parsed each time
    std::size_t sql = 0;           ///< where its text begins in sql_
    std::size_t first_argument = 0;
    std::size_t arguments = 0;
    Owner owner = kCaller;
    Keep keep = Keep::nothing;
    Author author = Author::framework;
  };
  struct Awaited {
    enum class Kind : std::uint8_t { parse, run, sync } kind;
    bool keep;
    Author author;
    Owner owner;
    Prepared* prepared;
  };

  void send_chunk();
  void send(const Unsent& statement);
  void sent_or_fail(int ok);
  Prepared* find_prepared(std::string_view sql, ArgumentBlock::Mark from);
  void read(const Awaited& awaited, Answers& answers);
  void note_failure(const Awaited& awaited, const PGresult* result, Answers& answers);

  Connection& connection_;
  const bool prepare_;
  bool held_ = false;
  bool reset_prepared_ = false;
  std::uint64_t transaction_ = 0;
  std::uint64_t names_ = 0;
  std::string key_;
  std::unordered_map<std::string, Prepared> prepared_;
  ArgumentBlock arguments_;
  std::size_t queued_arguments_ = 0;
  std::string sql_;
  std::vector<Unsent> unsent_;
  std::deque<Awaited> awaited_;
};

}  // namespace turnstile::postgres
