#pragma once
// The part of PostgreSQL's lexical rules that is needed to find where statements begin. Pure.

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace turnstile::detail {

/// Ignores the case of `text`. `word` must be in capitals.
inline bool equals_word(std::string_view text, std::string_view word) {
  return text.size() == word.size() && std::equal(text.begin(), text.end(), word.begin(), [](char c, char capital) {
           return (c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c) == capital;
         });
}

class SqlScanner {
 public:
  explicit SqlScanner(std::string_view sql) : sql_(sql) {}

  [[nodiscard]] bool at_end() const { return at_ == sql_.size(); }
  /// The next word. Empty: the next character belongs to no word, or the text ends.
  std::string_view word();
  /// Skips the semicolons before a statement, because PostgreSQL ignores empty statements.
  void skip_semicolons() {
    for (skip_blank(); !at_end() && sql_[at_] == ';'; skip_blank()) ++at_;
  }
  /// The next word. Skips everything else: texts, numbers, arguments, comments and signs. Empty at the end.
  std::string_view next_word();
  /// Whether the next character is an opening parenthesis.
  bool opens() {
    skip_blank();
    return !at_end() && sql_[at_] == '(';
  }
  /// Whether next_word() has passed a quoted name before a parenthesis.
  [[nodiscard]] bool called_quoted() const { return called_quoted_; }
  /// Whether the last word followed a dot, and so has a schema or a table as its prefix.
  [[nodiscard]] bool qualified() const { return qualified_; }
  /// Skips a table's name, its alias, and the parenthesis with its list of columns.
  void skip_target();
  /// Skips to the semicolon that ends the statement. `creates`: the statement may define a function, and semicolons in
  /// the function's body do not end it.
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

}  // namespace turnstile::detail
