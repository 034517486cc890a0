#include "turnstile/ports/handler_sql.hpp"

#include <algorithm>
#include <array>
#include <string>

#include "support/known_bad.hpp"
#include "turnstile/error.hpp"

namespace turnstile {

namespace {

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool begins_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || static_cast<unsigned char>(c) >= 0x80;
}
bool continues_word(char c) { return begins_word(c) || is_digit(c) || c == '$'; }

/// `word` must be in capitals.
bool equals(std::string_view text, std::string_view word) {
  return text.size() == word.size() && std::equal(text.begin(), text.end(), word.begin(), [](char c, char capital) {
           return (c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c) == capital;
         });
}

/// PostgreSQL's lexical rules, as far as they are needed to find where statements begin.
class Scanner {
 public:
  explicit Scanner(std::string_view sql) : sql_(sql) {}

  [[nodiscard]] bool at_end() const { return at_ == sql_.size(); }
  /// The next word. Empty if another character, or nothing, comes next.
  std::string_view word() {
    skip_blank();
    const std::size_t from = at_;
    if (at_end() || !begins_word(sql_[at_])) return {};
    while (!at_end() && continues_word(sql_[at_])) ++at_;
    return sql_.substr(from, at_ - from);
  }
  /// Skips the semicolons before a statement: PostgreSQL ignores empty statements.
  void skip_semicolons() {
    for (skip_blank(); !at_end() && sql_[at_] == ';'; skip_blank()) ++at_;
  }
  /// The next word; skips everything else: texts, numbers, arguments, comments, signs. Empty at the end.
  std::string_view next_word();
  /// Whether a parenthesis opens next.
  bool opens() {
    skip_blank();
    return !at_end() && sql_[at_] == '(';
  }
  /// Whether next_word() has passed a quoted name before a parenthesis.
  [[nodiscard]] bool called_quoted() const { return called_quoted_; }
  /// Whether the last word came after a dot: its prefix is a schema or a table.
  [[nodiscard]] bool qualified() const { return qualified_; }
  /// Skips a table's name, its alias, and the parenthesis with its list of columns.
  void skip_target();
  /// Skips to the semicolon that ends the statement. `creates`: the statement may define a function, whose body has
  /// semicolons of its own.
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
  bool called_quoted_ = false;
  bool qualified_ = false;
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

/// A doubled quote ends a text and begins another, which has the same result here.
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

std::string_view Scanner::next_word() {
  qualified_ = false;
  for (skip_blank(); !at_end(); skip_blank()) {
    const char c = sql_[at_];
    if (begins_word(c)) {
      const std::string_view name = word();
      if (at_end() || sql_[at_] != '\'' || !equals(name, "E")) return name;
      skip_quoted('\'', true);
    } else if (c == '\'' || c == '"') {
      skip_quoted(c, false);
      if (c == '"' && opens()) called_quoted_ = true;
    } else if (c == '$') {
      skip_dollar();
    } else if (is_digit(c)) {
      while (!at_end() && (continues_word(sql_[at_]) || sql_[at_] == '.')) ++at_;
    } else {
      ++at_;
    }
    qualified_ = c == '.';
  }
  return {};
}

void Scanner::skip_target() {
  const auto name = [&] {
    skip_blank();
    if (!at_end() && sql_[at_] == '"') skip_quoted('"', false);
    else static_cast<void>(word());
    skip_blank();
  };
  for (name(); !at_end() && sql_[at_] == '.'; name()) ++at_;
  const std::size_t alias = at_;
  if (equals(word(), "AS")) name();
  else at_ = alias;
  if (opens()) ++at_;
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
    "it would also apply to Turnstile's own statements in the transaction; for work that needs another role, call a function "
    "that is SECURITY DEFINER";
constexpr const char* kAllCursors = "it would close a cursor of Turnstile's own; close your cursors by their names";

enum class Whose { framework, caller };

/// Settings that change the rights or the kind of a transaction until its end.
bool is_of_whole_transaction(std::string_view setting) {
  constexpr std::string_view kind = "TRANSACTION_";
  return equals(setting, "ROLE") || equals(setting, "SESSION") || equals(setting.substr(0, kind.size()), kind);
}

/// Reads the statement's first words. `first` is the first of them.
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
  throw SqlError(
      "a statement was not sent: its text has a NUL byte, and PostgreSQL would end the statement there (SQLSTATE 22021)",
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

namespace {

/// Words that may stand before a parenthesis and leave nothing behind in a session: keywords, types and functions. In
/// alphabetical order.
constexpr std::string_view kLeavesNothing[] = {"ABS",
                                               "AGE",
                                               "ALL",
                                               "AND",
                                               "ANY",
                                               "ARRAY",
                                               "ARRAY_AGG",
                                               "ARRAY_APPEND",
                                               "ARRAY_LENGTH",
                                               "ARRAY_POSITION",
                                               "ARRAY_REMOVE",
                                               "ARRAY_TO_STRING",
                                               "AS",
                                               "AVG",
                                               "BETWEEN",
                                               "BIT",
                                               "BOOL_AND",
                                               "BOOL_OR",
                                               "BTRIM",
                                               "BY",
                                               "CARDINALITY",
                                               "CASE",
                                               "CAST",
                                               "CEIL",
                                               "CEILING",
                                               "CHAR",
                                               "CHARACTER",
                                               "CLOCK_TIMESTAMP",
                                               "COALESCE",
                                               "CONCAT",
                                               "CONCAT_WS",
                                               "CONFLICT",
                                               "COUNT",
                                               "CUBE",
                                               "CURRVAL",
                                               "DATE_PART",
                                               "DATE_TRUNC",
                                               "DECIMAL",
                                               "DECODE",
                                               "DENSE_RANK",
                                               "DISTINCT",
                                               "ELSE",
                                               "ENCODE",
                                               "EVERY",
                                               "EXCEPT",
                                               "EXISTS",
                                               "EXTRACT",
                                               "FILTER",
                                               "FIRST_VALUE",
                                               "FLOOR",
                                               "FORMAT",
                                               "FROM",
                                               "GENERATE_SERIES",
                                               "GEN_RANDOM_UUID",
                                               "GREATEST",
                                               "GROUP",
                                               "HASHTEXT",
                                               "HASHTEXTEXTENDED",
                                               "HAVING",
                                               "ILIKE",
                                               "IN",
                                               "INTERSECT",
                                               "INTERVAL",
                                               "JOIN",
                                               "JSONB_AGG",
                                               "JSONB_ARRAY_ELEMENTS",
                                               "JSONB_ARRAY_ELEMENTS_TEXT",
                                               "JSONB_BUILD_ARRAY",
                                               "JSONB_BUILD_OBJECT",
                                               "JSONB_EACH",
                                               "JSONB_EACH_TEXT",
                                               "JSONB_SET",
                                               "JSONB_TO_RECORDSET",
                                               "JSON_AGG",
                                               "JSON_BUILD_OBJECT",
                                               "LAG",
                                               "LAST_VALUE",
                                               "LATERAL",
                                               "LEAD",
                                               "LEAST",
                                               "LEFT",
                                               "LENGTH",
                                               "LIKE",
                                               "LIMIT",
                                               "LOWER",
                                               "LPAD",
                                               "MAKE_DATE",
                                               "MAKE_INTERVAL",
                                               "MATERIALIZED",
                                               "MAX",
                                               "MD5",
                                               "MIN",
                                               "MOD",
                                               "NEXTVAL",
                                               "NOT",
                                               "NOW",
                                               "NULLIF",
                                               "NUMERIC",
                                               "OFFSET",
                                               "ON",
                                               "OR",
                                               "OVER",
                                               "OVERLAY",
                                               "PG_ADVISORY_XACT_LOCK",
                                               "PG_TRY_ADVISORY_XACT_LOCK",
                                               "POSITION",
                                               "POWER",
                                               "RANDOM",
                                               "RANK",
                                               "REGEXP_REPLACE",
                                               "REPLACE",
                                               "RETURNING",
                                               "RIGHT",
                                               "ROLLUP",
                                               "ROUND",
                                               "ROW",
                                               "ROW_NUMBER",
                                               "RPAD",
                                               "SELECT",
                                               "SET",
                                               "SHA256",
                                               "SIGN",
                                               "SOME",
                                               "SPLIT_PART",
                                               "SQRT",
                                               "STATEMENT_TIMESTAMP",
                                               "STRING_AGG",
                                               "STRPOS",
                                               "SUBSTR",
                                               "SUBSTRING",
                                               "SUM",
                                               "THEN",
                                               "TIME",
                                               "TIMESTAMP",
                                               "TIMESTAMPTZ",
                                               "TO_CHAR",
                                               "TO_DATE",
                                               "TO_JSON",
                                               "TO_JSONB",
                                               "TO_NUMBER",
                                               "TO_TIMESTAMP",
                                               "TRIM",
                                               "TRUNC",
                                               "UNION",
                                               "UNNEST",
                                               "UPPER",
                                               "USING",
                                               "VALUES",
                                               "VARCHAR",
                                               "VARYING",
                                               "WHEN",
                                               "WHERE",
                                               "WITHIN"};

static_assert(std::is_sorted(std::begin(kLeavesNothing), std::end(kLeavesNothing)));

bool leaves_nothing(std::string_view word) {
  std::array<char, 32> capitals;
  if (word.size() > capitals.size()) return false;
  std::transform(word.begin(), word.end(), capitals.begin(),
                 [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; });
  return std::binary_search(std::begin(kLeavesNothing), std::end(kLeavesNothing),
                            std::string_view(capitals.data(), word.size()));
}

bool is_temporary(std::string_view word) {
  constexpr std::string_view schema = "PG_TEMP";  // also pg_temp_3
  return equals(word, "TEMP") || equals(word, "TEMPORARY") || equals(word.substr(0, schema.size()), schema);
}

}  // namespace

bool may_change_session(std::string_view sql) noexcept {
  Scanner scanner(sql);
  scanner.skip_semicolons();
  const std::string_view first = scanner.word();
  const auto is = [&](std::string_view keyword) { return equals(first, keyword); };
  // Of these, check_handler_sql() passes only statements whose effect ends with the transaction.
  if (is("SAVEPOINT") || is("RELEASE") || is("ROLLBACK") || is("SET")) return false;
  if (is("INSERT")) {
    if (!equals(scanner.word(), "INTO")) return true;
    scanner.skip_target();
  } else if (!is("SELECT") && !is("UPDATE") && !is("DELETE") && !is("WITH") && !is("VALUES") && !is("MERGE")) {
    return true;
  }
  bool is_alias = false;  // or a type: its parenthesis contains no arguments
  for (std::string_view word = scanner.next_word(); !word.empty(); word = scanner.next_word()) {
    if (scanner.called_quoted() || is_temporary(word)) return true;
    const bool opens = scanner.opens();
    if (opens && !is_alias && (scanner.qualified() || !leaves_nothing(word))) return true;
    is_alias = !opens && equals(word, "AS");
  }
  return scanner.called_quoted();
}

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
