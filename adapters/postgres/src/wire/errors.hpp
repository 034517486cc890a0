#pragma once
// What the server said, and which of the framework's errors that is. Decided by SQLSTATE, never by text (hazard: duplicate-by-exception).

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

/// A refusal by the server: the primary message only, since DETAIL can hold ids and payloads (hazard: error-detail).
struct ServerError {
  std::string sqlstate;
  std::string message;
  bool fatal = false;    ///< the server ends the connection after it
  std::string schema{};  ///< of the table, where the error has one
  std::string table{};
  std::string context{};  ///< the functions that were running. Can hold the text of statements: never to be shown
};

ServerError server_error(const PGresult* result);

/// The connection is gone. Inside this adapter only: what it means depends on what was under way.
struct ConnectionLost {
  ServerError last_words;   ///< `sqlstate` is empty when the server said nothing
  bool unanswered = false;  ///< given up after a wait: the server may be there, and hang
};

enum class Kind {
  statement,    ///< the statement is wrong, or its data
  busy,         ///< rolled back; the same again may pass
  unavailable,  ///< the server is ending, full, read-only, or refuses us
};
/// Of an error that ended a connection, or refused a statement of the adapter's own. For a handler's statement see throw_handler_error().
Kind classify(std::string_view sqlstate);
/// Whether a statement of the adapter's own was refused for what this server is, and not for what was asked: it is read-only, ending, full, or
/// does not know our role or prepared statements. Another connection may lead to another server.
bool is_of_this_server(std::string_view sqlstate);

/// The server has ended a transaction that was open for too long: whoever left it open has failed, and will again.
bool is_overdue(std::string_view sqlstate);

/// "duplicate key value violates … (SQLSTATE 23505)"
std::string describe(const ServerError& error);

/// A handler's statement was refused on a connection that lives. The server has answered, so that is no outage, whatever class of error it
/// names (a foreign server's 08, a bound of disk or memory): throws SqlError, or StoreBusy.
[[noreturn]] void throw_handler_error(const ServerError& error);
/// The same for a statement that a pooler keeps from working: StoreUnavailable with the remedy.
[[noreturn]] void throw_pooler_error(const ServerError& error);
/// One of the adapter's own statements was refused: throws StoreBusy, StoreUnavailable (what only an operator can mend, with the remedy), or
/// StoreFailed. `schema` and `user` are for the GRANT lines.
[[noreturn]] void throw_store_error(const ServerError& error, std::string_view schema, std::string_view user);
/// The same for what an operator asked for (Admin, migrations), where the refusal is the answer: SqlError in place of StoreFailed.
[[noreturn]] void throw_operator_error(const ServerError& error, std::string_view schema, std::string_view user);
/// The role lacks a right that consumers do not have and must not get: throws StoreUnavailable, which names the owner and no GRANT.
[[noreturn]] void throw_needs_owner(const ServerError& error, std::string_view schema, std::string_view user);
/// The connection was lost while no COMMIT was under way: throws StoreUnavailable, StoreBusy, or SqlError where the transaction was
/// overdue.
[[noreturn]] void throw_lost(const ConnectionLost& lost);

/// Whether a COMMIT was refused for what the server or its storage is, and not for what the transaction has done.
bool is_commit_failure_of_server(std::string_view sqlstate);

/// Another member owns the partition.
[[noreturn]] void throw_fenced(const Fence& fence);

}  // namespace turnstile::postgres
