#pragma once
// A call of a guard: its SQL with the caller's names in quotes, its arguments, and its error texts.

#include <string>
#include <string_view>
#include <vector>

#include "turnstile/postgres/guards.hpp"

namespace turnstile::postgres {

class GuardCall {
 public:
  /// `name` is the guard's name, for messages. Throws Error for an invalid name.
  GuardCall(Transaction& tx, std::string_view name, const Table& table, std::span<const Cell> key);

  /// "shop"."payment"
  [[nodiscard]] const std::string& table() const noexcept { return table_; }
  /// t."id" = $1 AND t."part" = $2
  [[nodiscard]] const std::string& key_matches() const noexcept { return key_matches_; }
  /// "$1", "$2", in the order of the key.
  [[nodiscard]] const std::vector<std::string>& key_arguments() const noexcept { return key_arguments_; }
  /// The column, in quotes. Throws Error for an invalid name.
  [[nodiscard]] std::string column(std::string_view name) const;
  /// Adds an argument and returns its placeholder, "$3", with a cast if the server cannot infer the type. `column` is
  /// for the error text. Throws SqlError 22021 for text with a NUL.
  std::string argument(std::string_view column, const Param& value);

  /// Runs the statement. An SqlError names the guard, the table, and what to do.
  Rows run(const std::string& sql);
  /// Runs a statement that returns the verdict and the found columns. No row: missing. Throws Error if the key matches
  /// more than one row.
  Guarded ask(const std::string& sql);
  /// Throws Error with the text after "guard(table): ".
  [[noreturn]] void fail(const std::string& text) const;
  /// The columns of the key, "id", "part".
  [[nodiscard]] std::string key_columns() const;

 private:
  [[nodiscard]] std::string remedy(std::string_view sqlstate) const;

  Transaction& tx_;
  std::string_view name_;
  bool schema_given_;
  std::string table_;
  std::span<const Cell> key_;
  std::vector<std::string> key_arguments_;
  std::string key_matches_;
  std::vector<Param> arguments_;
};

/// Appends `text`, after a separator unless it is the first.
inline void append(std::string& to, std::string_view separator, std::string_view text) {
  if (!to.empty()) to += separator;
  to += text;
}

/// SQL for the verdict, as the statements return it, and as a test's twin of a transaction may return it.
std::string verdict_case(const std::string& applied, const std::string& already_applied);

}  // namespace turnstile::postgres
