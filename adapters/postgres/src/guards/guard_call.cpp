#include "guards/guard_call.hpp"

#include <algorithm>

#include "turnstile/error.hpp"
#include "wire/identifier.hpp"

namespace turnstile::postgres {

namespace {

/// PostgreSQL cuts longer names without an error, so that two names could mean the same table.
constexpr std::size_t kLongestName = 63;

struct IsNull {
  template <class T>
  bool operator()(const T&) const noexcept {
    return std::is_same_v<T, std::monostate>;
  }
};

struct HasNul {
  bool operator()(std::string_view text) const noexcept { return text.find('\0') != text.npos; }
  bool operator()(std::span<const std::string> texts) const noexcept { return any(texts); }
  bool operator()(std::span<const std::string_view> texts) const noexcept { return any(texts); }
  template <class T>
  bool operator()(const T&) const noexcept {
    return false;
  }
  template <class Texts>
  static bool any(const Texts& texts) noexcept {
    return std::any_of(texts.begin(), texts.end(), [](std::string_view text) { return text.find('\0') != text.npos; });
  }
};

/// The type that an argument has through the framework's session. The cast gives it the same type through borrow().
struct Cast {
  std::string_view operator()(std::span<const std::byte>) const noexcept { return "::bytea"; }
  std::string_view operator()(const MessageId&) const noexcept { return "::uuid"; }
  std::string_view operator()(Timestamp) const noexcept { return "::timestamptz"; }
  std::string_view operator()(Numeric) const noexcept { return "::numeric"; }
  std::string_view operator()(Jsonb) const noexcept { return "::jsonb"; }
  std::string_view operator()(std::span<const std::int64_t>) const noexcept { return "::bigint[]"; }
  std::string_view operator()(std::span<const double>) const noexcept { return "::float8[]"; }
  std::string_view operator()(std::span<const MessageId>) const noexcept { return "::uuid[]"; }
  std::string_view operator()(std::span<const Timestamp>) const noexcept { return "::timestamptz[]"; }
  std::string_view operator()(std::span<const Numeric>) const noexcept { return "::numeric[]"; }
  std::string_view operator()(std::span<const Jsonb>) const noexcept { return "::jsonb[]"; }
  std::string_view operator()(std::span<const std::string>) const noexcept { return "::text[]"; }
  std::string_view operator()(std::span<const std::string_view>) const noexcept { return "::text[]"; }
  template <class T>
  std::string_view operator()(const T&) const noexcept {
    return "";
  }
};

/// The name, with '?' for bytes that would break a line or a terminal.
std::string shown(std::string_view name) {
  std::string text(name.substr(0, 80));
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '?');
  return text;
}

std::string name_problem(std::string_view what, std::string_view name) {
  if (name.empty()) return std::string(what) + " has no name";
  const std::string begin = std::string(what) + " \"" + shown(name) + "\"";
  if (name.find('\0') != name.npos) return begin + " has a NUL byte in its name";
  if (name.size() > kLongestName) {
    return begin + ": the name has " + std::to_string(name.size()) + " bytes, but PostgreSQL keeps only the first 63";
  }
  return "";
}

}  // namespace

GuardCall::GuardCall(Transaction& tx, std::string_view name, const Table& table, std::span<const Cell> key)
    : tx_(tx), name_(name), schema_given_(!table.schema.empty()), key_(key) {
  if (schema_given_) table_ = quote_identifier(table.schema) + ".";
  table_ += quote_identifier(table.name);
  for (const auto& [what, part] : {std::pair{"the schema", &table.schema}, {"the table", &table.name}}) {
    if (part == &table.schema && !schema_given_) continue;
    const std::string problem = name_problem(what, *part);
    if (!problem.empty()) throw Error(Code::api_misused, std::string(name_) + "(): " + problem);
  }
  if (key.empty()) fail("the key names no column; name the columns that identify one row");
  for (const Cell& cell : key) {
    if (std::visit(IsNull{}, cell.value.value())) {
      fail("the key's column " + column(cell.column) + " is NULL, which equals no value in SQL, not even NULL");
    }
    key_arguments_.push_back(argument(cell.column, cell.value));
    append(key_matches_, " AND ", "t." + column(cell.column) + " = " + key_arguments_.back());
  }
}

std::string GuardCall::column(std::string_view name) const {
  const std::string problem = name_problem("the column", name);
  if (!problem.empty()) fail(problem);
  return quote_identifier(name);
}

std::string GuardCall::argument(std::string_view column, const Param& value) {
  if (std::visit(HasNul{}, value.value())) {
    throw SqlError(
        std::string(name_) + "(" + table_ + "): the value of \"" + shown(column) +
            "\" is text with a NUL byte, which PostgreSQL's type text cannot store; pass bytes for a bytea column, "
            "or a hash (SQLSTATE 22021)",
        "22021");
  }
  arguments_.push_back(value);
  return "$" + std::to_string(arguments_.size()) + std::string(std::visit(Cast{}, value.value()));
}

Rows GuardCall::run(const std::string& sql) {
  try {
    return tx_.run(sql, arguments_);
  } catch (const SqlError& error) {
    throw SqlError(std::string(name_) + "(" + table_ + "): " + error.what() + remedy(error.sqlstate), error.sqlstate);
  }
}

Guarded GuardCall::ask(const std::string& sql) {
  const Rows rows = run(sql);
  if (rows.columns() == 0) {
    fail(
        "the statement returned no columns; a test that answers for the database must return a column with applied, "
        "already_applied or conflict, then the columns that were found, or no row for missing");
  }
  if (rows.size() > 1) {
    fail("the key (" + key_columns() +
         ") matches more than one row, so nothing was changed; name columns that have a unique index");
  }
  Guarded result;
  if (rows.empty()) return result;
  const auto verdict = rows.get<std::string>(0, 0);
  if (verdict == "applied") result.verdict = Verdict::applied;
  else if (verdict == "already_applied") result.verdict = Verdict::already_applied;
  result.found = Rows(rows.columns() - 1, 1);
  for (std::size_t column = 1; column < rows.columns(); ++column) result.found.add(rows.at(0, column));
  return result;
}

void GuardCall::fail(const std::string& text) const {
  throw Error(Code::api_misused, std::string(name_) + "(" + table_ + "): " + text);
}

std::string GuardCall::key_columns() const {
  std::string columns;
  for (const Cell& cell : key_) append(columns, ", ", column(cell.column));
  return columns;
}

std::string GuardCall::remedy(std::string_view state) const {
  if (state == "42P01" && name_.starts_with("one_time_token")) {
    return "; run: turnstile migrate up; if postgres.schema is not turnstile, write Table{\"SCHEMA\", \"one_time_token\"}";
  }
  if (state == "42P01" && !schema_given_) {
    return "; create the table; if it is in a schema outside search_path, write Table{\"SCHEMA\", \"TABLE\"}";
  }
  if (state == "42P01" || state == "3F000") return "; create the table, or correct its name (names are case-sensitive)";
  if (state == "42703") return "; add the column, or correct its name (names are case-sensitive)";
  if (state == "42P10") {
    return "; create the unique index that the guard needs: CREATE UNIQUE INDEX ON " + table_ + " (" + key_columns() +
           ")";
  }
  if (state == "55000") return "; the guard needs a unique index that is not deferrable";
  if (state == "42501")
    return "; as the owner of the table run: GRANT SELECT, INSERT, UPDATE ON " + table_ + " TO the role";
  if (state == "42883" || state == "42725")
    return "; the guard compares the columns that it names; PostgreSQL can compare jsonb, but not json";
  if (state == "22021") return "; pass bytes for a bytea column, or a hash";
  if (state == "23505") return "; the violated unique index is not the key's; write a separate guard for its columns";
  return "";
}

std::string verdict_case(const std::string& applied, const std::string& already_applied) {
  return "CASE WHEN " + applied + " THEN 'applied' WHEN " + already_applied +
         " THEN 'already_applied' ELSE 'conflict' END";
}

}  // namespace turnstile::postgres
