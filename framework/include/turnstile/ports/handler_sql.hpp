#pragma once
// Which statements a handler must not send: the framework begins and ends its transaction, on a connection that other messages use
// afterwards. For adapters that run handlers' statements.

#include <string_view>

namespace turnstile {

/// For one statement on the framework's connection. Throws SqlError before anything is sent: 2D000 for a statement that begins or ends
/// the transaction (savepoints pass) or changes the session beyond it (SET without LOCAL), or for CLOSE ALL, which closes cursors of the framework's, too; 22021 for text that holds a NUL byte. Reads no further than
/// the statement's first keywords: PostgreSQL itself refuses a second statement in a text that it prepares.
void check_handler_sql(std::string_view sql);

/// Whether the statement, as check_handler_sql() reads it, is a SAVEPOINT.
[[nodiscard]] bool makes_savepoint(std::string_view sql) noexcept;

/// Whether the statement, read in the same way, is a PREPARE.
[[nodiscard]] bool makes_prepared(std::string_view sql) noexcept;

/// Whether the statement may leave something behind in its session: a temporary table, a setting, a lock. False for SELECT, INSERT, UPDATE
/// and the like that call only functions of PostgreSQL's which are known to leave nothing. It does not see what triggers, rules, defaults and
/// operators do.
[[nodiscard]] bool may_change_session(std::string_view sql) noexcept;

/// For a text on the caller's own connection, which may hold several statements. Throws as check_handler_sql(), and looks at each of
/// them; the session is the caller's, so SET passes.
void check_borrowed_sql(std::string_view sql);

}  // namespace turnstile
