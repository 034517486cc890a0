#pragma once
// Checks for statements that a handler must not send. The framework begins and ends its transaction, on a connection
// that other messages use afterwards. For adapters that run handlers' statements.

#include <string_view>

namespace turnstile::ports {

/// Checks a statement on the framework's connection. Throws SqlError before anything is sent:
/// - 2D000 for a statement that begins or ends the transaction (savepoints are allowed).
/// - 2D000 for a statement that changes the session beyond the transaction (SET without LOCAL), and for CLOSE ALL,
///   which also closes cursors of the framework.
/// - 22021 for text that contains a NUL byte.
/// It reads only the first keywords of the statement. PostgreSQL itself refuses a second statement in a text that it
/// prepares.
void check_handler_sql(std::string_view sql);

/// Whether the statement is a SAVEPOINT. It reads the statement as check_handler_sql() does.
[[nodiscard]] bool makes_savepoint(std::string_view sql) noexcept;

/// Whether the statement is a PREPARE. It reads the statement as check_handler_sql() does.
[[nodiscard]] bool makes_prepared(std::string_view sql) noexcept;

/// Whether the statement may change its session permanently: by a temporary table, a setting, or a lock. False for
/// SELECT, INSERT, UPDATE and similar statements, if all functions that they call belong to PostgreSQL and are known to
/// change nothing. It cannot see what triggers, rules, defaults and operators do.
[[nodiscard]] bool may_change_session(std::string_view sql) noexcept;

/// Whether the text may change the role of its transaction, or make it read-only: it has the words role, authorization
/// or only, or calls set_config() with a name that is not written in quotes. It cannot see what functions do.
[[nodiscard]] bool names_role(std::string_view sql) noexcept;

/// Checks a text on the caller's own connection, which may contain several statements. Throws as check_handler_sql(),
/// and checks each statement. The session belongs to the caller, so SET is allowed.
void check_borrowed_sql(std::string_view sql);

}  // namespace turnstile::ports
