#include "shell.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "text.hpp"

namespace turnstile::cli {

namespace {

bool needs_no_quotes(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("_-./:@%+,=").find(c) != std::string_view::npos;
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
  if (one_line(text, text.size()) != text) {
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

}  // namespace turnstile::cli
