#include "turnstile/ports/handler_sql.hpp"

#include <string>

#include "delivery/sql_scanner.hpp"
#include "support/known_bad.hpp"
#include "turnstile/error.hpp"

namespace turnstile::ports {

namespace {

[[noreturn]] void refuse(const std::string& what, const char* remedy) {
  throw SqlError(what + " was not sent: " + remedy + " (SQLSTATE 2D000)", "2D000");
}

constexpr const char* kFrameworksOwn =
    "Turnstile begins and ends the transaction of a handler; remove the statement, and throw to have the message's work rolled back "
    "(savepoints are allowed)";
constexpr const char* kBeyondTransaction =
    "it would stay in effect after the transaction, on a connection that other messages use; write SET LOCAL";

constexpr const char* kFrameworksToo =
    "it would also apply to Turnstile's own statements in the transaction; to work as another role, call a SECURITY DEFINER "
    "function";
constexpr const char* kAllCursors = "it would close a cursor of Turnstile's own; close your cursors by their names";

enum class Whose { framework, caller };

/// Settings that change the rights or the kind of a transaction until it ends.
bool is_of_whole_transaction(std::string_view setting) {
  constexpr std::string_view kind = "TRANSACTION_";
  return detail::equals_word(setting, "ROLE") || detail::equals_word(setting, "SESSION") ||
         detail::equals_word(setting.substr(0, kind.size()), kind);
}

/// Refuses statements that a handler must not send. Reads only the first words of the statement; `first` is the first
/// word.
void check_statement(detail::SqlScanner& scanner, std::string_view first, Whose session) {
  const auto is = [&](std::string_view keyword) { return detail::equals_word(first, keyword); };
  switch (first.empty() ? '\0' : first.front() & ~0x20) {
    case 'A':
      if (is("ABORT")) refuse("ABORT", kFrameworksOwn);
      break;
    case 'B':
      if (is("BEGIN")) refuse("BEGIN", kFrameworksOwn);
      break;
    case 'C':
      if (is("COMMIT")) refuse("COMMIT", kFrameworksOwn);
      if (session == Whose::framework && is("CLOSE") && detail::equals_word(scanner.word(), "ALL"))
        refuse("CLOSE ALL", kAllCursors);
      break;
    case 'D':
      if (session == Whose::framework && is("DISCARD")) refuse("DISCARD", kBeyondTransaction);
      break;
    case 'E':
      if (is("END")) refuse("END", kFrameworksOwn);
      break;
    case 'P':
      if (is("PREPARE") && detail::equals_word(scanner.word(), "TRANSACTION"))
        refuse("PREPARE TRANSACTION", kFrameworksOwn);
      break;
    case 'R':
      if (is("ROLLBACK")) {
        auto next = scanner.word();
        if (detail::equals_word(next, "WORK") || detail::equals_word(next, "TRANSACTION")) next = scanner.word();
        if (!detail::equals_word(next, "TO")) refuse("ROLLBACK", kFrameworksOwn);
      } else if (session == Whose::framework && is("RESET")) {
        refuse("RESET", kBeyondTransaction);
      }
      break;
    case 'S':
      if (is("START")) refuse("START TRANSACTION", kFrameworksOwn);
      if (is("SET")) {
        const auto next = scanner.word();
        const bool local = detail::equals_word(next, "LOCAL");
        if (session == Whose::caller) break;
        const auto what = local ? scanner.word() : next;
        if (detail::equals_word(what, "TRANSACTION")) refuse("SET TRANSACTION", kFrameworksOwn);
        if (local && is_of_whole_transaction(what)) refuse("SET LOCAL " + std::string(what), kFrameworksToo);
        if (!local && !detail::equals_word(next, "CONSTRAINTS")) refuse("SET " + std::string(next), kBeyondTransaction);
      }
      break;
    default: break;
  }
}

void refuse_nul(std::string_view sql) {
  if (sql.find('\0') == std::string_view::npos) return;
  throw SqlError(
      "a statement was not sent: its text has a NUL byte, where PostgreSQL would end the statement (SQLSTATE 22021)",
      "22021");
}

bool begins_with(std::string_view sql, std::string_view keyword) {
  detail::SqlScanner scanner(sql);
  scanner.skip_semicolons();
  return detail::equals_word(scanner.word(), keyword);
}

}  // namespace

void check_handler_sql(std::string_view sql) {
  refuse_nul(sql);
  if (detail::known_bad("handler_sql")) return;
  detail::SqlScanner scanner(sql);
  scanner.skip_semicolons();
  check_statement(scanner, scanner.word(), Whose::framework);
}

bool makes_savepoint(std::string_view sql) noexcept { return begins_with(sql, "SAVEPOINT"); }
bool makes_prepared(std::string_view sql) noexcept { return begins_with(sql, "PREPARE"); }

void check_borrowed_sql(std::string_view sql) {
  refuse_nul(sql);
  detail::SqlScanner scanner(sql);
  for (scanner.skip_semicolons(); !scanner.at_end(); scanner.skip_semicolons()) {
    const std::string_view first = scanner.word();
    check_statement(scanner, first, Whose::caller);
    scanner.skip_statement(detail::equals_word(first, "CREATE"));
  }
}

}  // namespace turnstile::ports
