#include "turnstile/shell.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "turnstile/text.hpp"

namespace turnstile::text {

namespace {

bool needs_no_quotes(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("_-./:@%+,=").find(c) != std::string_view::npos;
}

/// Whether a terminal shows all of it, and nothing else.
bool is_shown(std::string_view text) {
  while (!text.empty()) {
    const auto next = first_character(text);
    if (!next || is_control(next->code) || is_direction(next->code)) return false;
    text.remove_prefix(next->bytes);
  }
  return true;
}

/// For printf of sh.
std::string as_numbers(std::string_view text) {
  std::string format;
  for (const char c : text) {
    if (needs_no_quotes(c) && c != '%') format += c;
    else format += fmt::format("\\{:03o}", static_cast<unsigned>(static_cast<unsigned char>(c)));
  }
  return "\"$(printf '" + format + "')\"";
}

}  // namespace

std::optional<std::string> shell_word(std::string_view text) {
  if (text.find('\0') != std::string_view::npos) return std::nullopt;
  if (!text.empty() && std::all_of(text.begin(), text.end(), needs_no_quotes)) return std::string(text);
  if (!is_shown(text)) {
    if (text.ends_with('\n')) return std::nullopt;  // sh removes it
    return as_numbers(text);
  }
  std::string word = "'";
  for (const char c : text) {
    if (c == '\'') word += "'\\''";
    else word += c;
  }
  return word + "'";
}

std::string shell_operand(std::string_view text, std::string_view otherwise) {
  const auto word = shell_word(text);
  if (!word) return std::string(otherwise);
  return (text.starts_with('-') ? "-- " : "") + *word;
}

std::string shell_option(std::string_view option, std::string_view value, std::string_view otherwise) {
  const std::string word = shell_word(value).value_or(std::string(otherwise));
  return std::string(option) + (value.starts_with('-') ? "=" : " ") + word;
}

}  // namespace turnstile::text
