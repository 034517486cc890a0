#pragma once
// Runs one statement at a time on one connection, for operators' calls. Consumers never use it.

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "inbox/claim_statements.hpp"
#include "turnstile/postgres/admin.hpp"
#include "turnstile/transaction.hpp"
#include "wire/connection.hpp"
#include "wire/locks.hpp"

namespace turnstile::postgres {

/// Statement arguments as text; absent is NULL. Statements cast them: `$1::uuid`.
using Arguments = std::vector<std::optional<std::string>>;

/// How long the server works on a statement, besides its wait for a lock, before it gives up (then StoreBusy).
struct Patience {
  int statement_ms = 30'000;
};

class Admin::Session {
 public:
  explicit Session(const PostgresSettings& settings);

  /// Runs `work` in a new transaction, with unqualified names in the configured schema, and commits. After an error it
  /// drops the connection, which ends the transaction.
  template <class Work>
  auto transact(const Patience& patience, Work work) {
    begin(patience);
    try {
      auto answer = work();
      run("COMMIT");
      return answer;
    } catch (...) {
      connection_.reset();
      throw;
    }
  }

  /// Opens a read-only transaction whose statements all see the same moment. It ends with this object, or after an
  /// error.
  void open_snapshot(const Patience& patience);

  /// Runs a statement in the open transaction.
  Rows run(std::string_view sql, const Arguments& arguments = {});
  /// Runs a statement in a new transaction.
  Rows ask(std::string_view sql, const Arguments& arguments = {}, const Patience& patience = {}) {
    return transact(patience, [&] { return run(sql, arguments); });
  }

  [[nodiscard]] const std::string& schema() const noexcept { return settings_.schema; }
  /// Of the last connection, for example 150018.
  [[nodiscard]] int server_version() const;
  [[nodiscard]] std::string user() const { return connection_->user(); }

 private:
  void begin(const Patience& patience, std::string_view statement = "BEGIN ISOLATION LEVEL READ COMMITTED");
  Rows collect();
  [[noreturn]] void refuse(const ServerError& error, LockWatch& watch) const;

  PostgresSettings settings_;
  std::unique_ptr<Connection> connection_;
};

/// SQL for a timestamptz as microseconds since 1970, as bigint; NULL for NULL. A row that was changed by hand can
/// contain a time that 64 bits cannot store, or 'infinity'. It is then the nearest time that they can store.
std::string microseconds_of(std::string_view time);
/// A column that a statement selects with microseconds_of().
DatabaseTime time_at(const Rows& rows, std::size_t row, std::size_t column);
std::optional<DatabaseTime> time_or_none(const Rows& rows, std::size_t row, std::size_t column);
std::string text_or_empty(const Rows& rows, std::size_t row, std::size_t column);
MessageId id_at(const Rows& rows, std::size_t row, std::size_t column);

}  // namespace turnstile::postgres
