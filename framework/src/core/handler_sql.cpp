#include "turnstile/ports/handler_sql.hpp"

#include <algorithm>
#include <string>

#include "core/known_bad.hpp"
#include "turnstile/error.hpp"

namespace turnstile {

namespace {

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool begins_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || static_cast<unsigned char>(c) >= 0x80;
}
bool continues_word(char c) { return begins_word(c) || is_digit(c) || c == '$'; }

/// `word` is in capitals.
bool equals(std::string_view text, std::string_view word) {
  return text.size() == word.size() && std::equal(text.begin(), text.end(), word.begin(), [](char c, char capital) {
           return (c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c) == capital;
         });
}

/// PostgreSQL's lexical rules, as far as it takes to find where statements begin.
class Scanner {
 public:
  explicit Scanner(std::string_view sql) : sql_(sql) {}

  [[nodiscard]] bool at_end() const { return at_ == sql_.size(); }
  /// The next word; empty when something else, or nothing, comes next.
  std::string_view word() {
    skip_blank();
    const std::size_t from = at_;
    if (at_end() || !begins_word(sql_[at_])) return {};
    while (!at_end() && continues_word(sql_[at_])) ++at_;
    return sql_.substr(from, at_ - from);
  }
  /// Past the semicolons before a statement: PostgreSQL ignores empty ones.
  void skip_semicolons() {
    for (skip_blank(); !at_end() && sql_[at_] == ';'; skip_blank()) ++at_;
  }
  /// To the semicolon that ends the statement. `creates`: it may define a function, whose body has semicolons of its own.
  void skip_statement(bool creates);

 private:
  [[nodiscard]] bool ahead(std::string_view text) const { return sql_.substr(at_, text.size()) == text; }
  void skip_past(std::string_view text) {
    const auto found = sql_.find(text, at_);
    at_ = found == std::string_view::npos ? sql_.size() : found + text.size();
  }
  void skip_blank();
  void skip_comment();
  void skip_quoted(char quote, bool backslashes);
  void skip_dollar();

  std::string_view sql_;
  std::size_t at_ = 0;
};

void Scanner::skip_blank() {
  while (!at_end()) {
    if (is_space(sql_[at_])) ++at_;
    else if (ahead("--")) at_ = std::min(sql_.find_first_of("\n\r", at_), sql_.size());
    else if (ahead("/*")) skip_comment();
    else return;
  }
}

/// Comments nest.
void Scanner::skip_comment() {
  at_ += 2;
  for (int depth = 1; depth > 0 && !at_end();) {
    if (ahead("/*")) ++depth, at_ += 2;
    else if (ahead("*/")) --depth, at_ += 2;
    else ++at_;
  }
}

/// A doubled quote ends one text and begins another, which comes to the same here.
void Scanner::skip_quoted(char quote, bool backslashes) {
  for (++at_; !at_end() && sql_[at_] != quote; ++at_) {
    if (backslashes && sql_[at_] == '\\' && at_ + 1 < sql_.size()) ++at_;
  }
  if (!at_end()) ++at_;
}

/// $$text$$ or $tag$text$tag$; $1 is an argument.
void Scanner::skip_dollar() {
  std::size_t end = at_ + 1;
  if (end < sql_.size() && is_digit(sql_[end])) {
    at_ = end;
    return;
  }
  while (end < sql_.size() && sql_[end] != '$' && continues_word(sql_[end])) ++end;
  if (end == sql_.size() || sql_[end] != '$') {
    ++at_;
    return;
  }
  const std::string_view tag = sql_.substr(at_, end + 1 - at_);
  at_ = end + 1;
  skip_past(tag);
}

void Scanner::skip_statement(bool creates) {
  int parentheses = 0, blocks = 0;
  for (skip_blank(); !at_end(); skip_blank()) {
    const char c = sql_[at_];
    if (begins_word(c)) {
      const std::string_view name = word();
      const bool escapes = !at_end() && sql_[at_] == '\'' && equals(name, "E");
      if (escapes) skip_quoted('\'', true);
      else if (creates && (equals(name, "BEGIN") || (blocks > 0 && equals(name, "CASE")))) ++blocks;
      else if (blocks > 0 && equals(name, "END")) --blocks;
    } else if (c == '\'' || c == '"') {
      skip_quoted(c, false);
    } else if (c == '$') {
      skip_dollar();
    } else {
      ++at_;
      if (c == '(') ++parentheses;
      else if (c == ')') --parentheses;
      else if (c == ';' && parentheses <= 0 && blocks == 0) return;
      else if (is_digit(c)) {
        while (!at_end() && continues_word(sql_[at_])) ++at_;
      }
    }
  }
}

[[noreturn]] void refuse(const std::string& what, const char* remedy) {
  throw SqlError(what + " was not sent: " + remedy + " (SQLSTATE 2D000)", "2D000");
}

constexpr const char* kFrameworksOwn =
    "Turnstile begins and ends the transaction of a handler; remove the statement, and throw to have the message's work rolled back "
    "(savepoints are allowed)";
constexpr const char* kBeyondTransaction =
    "it would outlast the transaction, on a connection that other messages use; write SET LOCAL";

constexpr const char* kFrameworksToo =
    "Turnstile's own statements of the transaction would run with it too; reach what needs another role through a function that is "
    "SECURITY DEFINER";
constexpr const char* kAllCursors = "it would close a cursor of Turnstile's own; close your cursors by their names";

enum class Whose { framework, caller };

/// What changes the rights, or the kind, of a transaction up to its end.
bool is_of_whole_transaction(std::string_view setting) {
  constexpr std::string_view kind = "TRANSACTION_";
  return equals(setting, "ROLE") || equals(setting, "SESSION") || equals(setting.substr(0, kind.size()), kind);
}

/// Reads the statement's first words; `first` is the first of them.
void check_statement(Scanner& scanner, std::string_view first, Whose session) {
  const auto is = [&](std::string_view keyword) { return equals(first, keyword); };
  switch (first.empty() ? '\0' : first.front() & ~0x20) {
    case 'A':
      if (is("ABORT")) refuse("ABORT", kFrameworksOwn);
      break;
    case 'B':
      if (is("BEGIN")) refuse("BEGIN", kFrameworksOwn);
      break;
    case 'C':
      if (is("COMMIT")) refuse("COMMIT", kFrameworksOwn);
      if (session == Whose::framework && is("CLOSE") && equals(scanner.word(), "ALL")) refuse("CLOSE ALL", kAllCursors);
      break;
    case 'D':
      if (session == Whose::framework && is("DISCARD")) refuse("DISCARD", kBeyondTransaction);
      break;
    case 'E':
      if (is("END")) refuse("END", kFrameworksOwn);
      break;
    case 'P':
      if (is("PREPARE") && equals(scanner.word(), "TRANSACTION")) refuse("PREPARE TRANSACTION", kFrameworksOwn);
      break;
    case 'R':
      if (is("ROLLBACK")) {
        auto next = scanner.word();
        if (equals(next, "WORK") || equals(next, "TRANSACTION")) next = scanner.word();
        if (!equals(next, "TO")) refuse("ROLLBACK", kFrameworksOwn);
      } else if (session == Whose::framework && is("RESET")) {
        refuse("RESET", kBeyondTransaction);
      }
      break;
    case 'S':
      if (is("START")) refuse("START TRANSACTION", kFrameworksOwn);
      if (is("SET")) {
        const auto next = scanner.word();
        const bool local = equals(next, "LOCAL");
        if (session == Whose::caller) break;
        const auto what = local ? scanner.word() : next;
        if (equals(what, "TRANSACTION")) refuse("SET TRANSACTION", kFrameworksOwn);
        if (local && is_of_whole_transaction(what)) refuse("SET LOCAL " + std::string(what), kFrameworksToo);
        if (!local && !equals(next, "CONSTRAINTS")) refuse("SET " + std::string(next), kBeyondTransaction);
      }
      break;
    default: break;
  }
}

void refuse_nul(std::string_view sql) {
  if (sql.find('\0') == std::string_view::npos) return;
  throw SqlError("a statement was not sent: its text holds a NUL byte, where PostgreSQL would end it (SQLSTATE 22021)",
                 "22021");
}

}  // namespace

void check_handler_sql(std::string_view sql) {
  refuse_nul(sql);
  if (known_bad("handler_sql")) return;
  Scanner scanner(sql);
  scanner.skip_semicolons();
  check_statement(scanner, scanner.word(), Whose::framework);
}

namespace {

bool begins_with(std::string_view sql, std::string_view keyword) {
  Scanner scanner(sql);
  scanner.skip_semicolons();
  return equals(scanner.word(), keyword);
}

}  // namespace

bool makes_savepoint(std::string_view sql) noexcept { return begins_with(sql, "SAVEPOINT"); }
bool makes_prepared(std::string_view sql) noexcept { return begins_with(sql, "PREPARE"); }

void check_borrowed_sql(std::string_view sql) {
  refuse_nul(sql);
  Scanner scanner(sql);
  for (scanner.skip_semicolons(); !scanner.at_end(); scanner.skip_semicolons()) {
    const std::string_view first = scanner.word();
    check_statement(scanner, first, Whose::caller);
    scanner.skip_statement(equals(first, "CREATE"));
  }
}

}  // namespace turnstile
