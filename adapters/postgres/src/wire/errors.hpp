#pragma once
// Converts the server's errors to the framework's errors. SQLSTATE decides, never the text
// (hazard: duplicate-by-exception).

#include <libpq-fe.h>

#include <memory>
#include <string>
#include <string_view>

#include "turnstile/types.hpp"

namespace turnstile::postgres {

struct ClearResult {
  void operator()(PGresult* result) const noexcept { PQclear(result); }
};
using Result = std::unique_ptr<PGresult, ClearResult>;

/// An error of the server. It has only the primary message, because DETAIL can contain ids and payloads
/// (hazard: error-detail).
struct ServerError {
  std::string sqlstate;
  std::string message;
  bool fatal = false;    ///< the server closes the connection after it
  std::string schema{};  ///< of the table, if the error has one
  std::string table{};
  /// The functions that were running. It can contain the text of statements: never show it.
  std::string context{};
};

ServerError server_error(const PGresult* result);

inline constexpr std::string_view kUniqueViolation = "23505";

/// The connection is lost. For use inside this adapter only: its meaning depends on what was in progress.
struct ConnectionLost {
  ServerError last_words;   ///< `sqlstate` is empty if the server sent no error
  bool unanswered = false;  ///< given up after a wait: the server may be hanging
};

enum class Kind {
  statement,    ///< the statement, or its data, is wrong
  busy,         ///< rolled back; a repeat may succeed
  unavailable,  ///< the server is ending, full, read-only, or refuses the client
};
/// For an error that ended a connection, or refused one of the adapter's own statements. For a handler's statement see
/// throw_handler_error().
Kind classify(std::string_view sqlstate);
/// Whether this server is the reason for the refusal of one of the adapter's own statements. The server is read-only,
/// ending or full, or does not know the role or the prepared statements. A new connection may lead to another server.
bool is_of_this_server(std::string_view sqlstate);

/// The server has ended a transaction that was open for too long. The handler that left it open has failed, and will
/// fail again.
bool is_overdue(std::string_view sqlstate);

/// "duplicate key value violates … (SQLSTATE 23505)"
std::string describe(const ServerError& error);

/// A handler's statement was refused, and the connection is alive. The server has answered, so that is no outage, for
/// any class of error (a foreign server's 08, a limit of disk or memory). Throws SqlError or StoreBusy.
[[noreturn]] void throw_handler_error(const ServerError& error);
/// The same for a statement that fails because of a pooler: StoreUnavailable with the remedy.
[[noreturn]] void throw_pooler_error(const ServerError& error);
/// One of the adapter's own statements was refused. Throws StoreBusy, StoreUnavailable (only an operator can correct
/// it; with the remedy), or StoreFailed. `schema` and `user` are for the GRANT lines.
[[noreturn]] void throw_store_error(const ServerError& error, std::string_view schema, std::string_view user);
/// The same for operators' calls (Admin, migrations), where the refusal is the result: SqlError in place of
/// StoreFailed.
[[noreturn]] void throw_operator_error(const ServerError& error, std::string_view schema, std::string_view user);
/// The role lacks a right that consumers must not have. Throws StoreUnavailable, which names the owner and no GRANT.
[[noreturn]] void throw_needs_owner(const ServerError& error, std::string_view schema, std::string_view user);
/// The connection was lost while no COMMIT was in progress. Throws StoreUnavailable, StoreBusy, or SqlError if the
/// transaction was overdue.
[[noreturn]] void throw_lost(const ConnectionLost& lost);

/// Whether the server or its storage is the reason for a refused COMMIT, and not the transaction.
bool is_commit_failure_of_server(std::string_view sqlstate);

/// Another member owns the partition.
[[noreturn]] void throw_fenced(const Fence& fence);

}  // namespace turnstile::postgres
