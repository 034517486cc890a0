#include "delivery/sql_scanner.hpp"

#include <algorithm>

namespace turnstile::detail {

namespace {

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool begins_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || static_cast<unsigned char>(c) >= 0x80;
}
bool continues_word(char c) { return begins_word(c) || is_digit(c) || c == '$'; }

}  // namespace

std::string_view SqlScanner::word() {
  skip_blank();
  const std::size_t from = at_;
  if (at_end() || !begins_word(sql_[at_])) return {};
  while (!at_end() && continues_word(sql_[at_])) ++at_;
  return sql_.substr(from, at_ - from);
}

void SqlScanner::skip_blank() {
  while (!at_end()) {
    if (is_space(sql_[at_])) ++at_;
    else if (ahead("--")) at_ = std::min(sql_.find_first_of("\n\r", at_), sql_.size());
    else if (ahead("/*")) skip_comment();
    else return;
  }
}

/// PostgreSQL's comments can be nested.
void SqlScanner::skip_comment() {
  at_ += 2;
  for (int depth = 1; depth > 0 && !at_end();) {
    if (ahead("/*")) ++depth, at_ += 2;
    else if (ahead("*/")) --depth, at_ += 2;
    else ++at_;
  }
}

/// A doubled quote is read as the end of a text and the start of another. The scanner's result is the same.
void SqlScanner::skip_quoted(char quote, bool backslashes) {
  for (++at_; !at_end() && sql_[at_] != quote; ++at_) {
    if (backslashes && sql_[at_] == '\\' && at_ + 1 < sql_.size()) ++at_;
  }
  if (!at_end()) ++at_;
}

/// Skips $$text$$ or $tag$text$tag$. $1 is an argument.
void SqlScanner::skip_dollar() {
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

std::string_view SqlScanner::next_word() {
  qualified_ = false;
  for (skip_blank(); !at_end(); skip_blank()) {
    const char c = sql_[at_];
    if (begins_word(c)) {
      const std::string_view name = word();
      if (at_end() || sql_[at_] != '\'' || !equals_word(name, "E")) return name;
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

void SqlScanner::skip_target() {
  const auto name = [&] {
    skip_blank();
    if (!at_end() && sql_[at_] == '"') skip_quoted('"', false);
    else static_cast<void>(word());
    skip_blank();
  };
  for (name(); !at_end() && sql_[at_] == '.'; name()) ++at_;
  const std::size_t alias = at_;
  if (equals_word(word(), "AS")) name();
  else at_ = alias;
  if (opens()) ++at_;
}

void SqlScanner::skip_statement(bool creates) {
  int parentheses = 0, blocks = 0;
  for (skip_blank(); !at_end(); skip_blank()) {
    const char c = sql_[at_];
    if (begins_word(c)) {
      const std::string_view name = word();
      const bool escapes = !at_end() && sql_[at_] == '\'' && equals_word(name, "E");
      if (escapes) skip_quoted('\'', true);
      else if (creates && (equals_word(name, "BEGIN") || (blocks > 0 && equals_word(name, "CASE")))) ++blocks;
      else if (blocks > 0 && equals_word(name, "END")) --blocks;
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

}  // namespace turnstile::detail
