#include "key.hpp"

#include <algorithm>
#include <optional>

namespace turnstile::http {

namespace {

bool printable(char c) { return c >= ' ' && c <= '~'; }

/// The text between the quotes. Absent if the quotes do not close, if text follows, or if a backslash stands before any
/// other character.
std::optional<std::string> unquoted(std::string_view value) {
  std::string key;
  for (std::size_t i = 1; i < value.size(); ++i) {
    if (value[i] == '"') return i + 1 == value.size() ? std::optional(key) : std::nullopt;
    if (value[i] == '\\') {
      ++i;
      if (i == value.size() || (value[i] != '"' && value[i] != '\\')) return std::nullopt;
    }
    key += value[i];
  }
  return std::nullopt;
}

bool is_bare(std::string_view value) {
  return std::all_of(value.begin(), value.end(), [](char c) { return c > ' ' && c <= '~' && c != '"' && c != ','; });
}

}  // namespace

Key check_key(std::string key, std::size_t max) {
  if (key.empty()) return Malformed{"is empty"};
  if (!std::all_of(key.begin(), key.end(), printable)) return Malformed{"has a byte that is not printable ASCII"};
  if (key.size() > max) {
    return Malformed{"has " + std::to_string(key.size()) + " bytes, more than the maximum of " + std::to_string(max)};
  }
  return key;
}

Key parse_key(std::string_view value, std::size_t max) {
  const bool quoted = value.starts_with('"');
  auto text = quoted ? unquoted(value) : std::string(value);
  if (!text) {
    return Malformed{
        "Idempotency-Key begins with a quote, but is not a string of RFC 8941; end it with a quote, and write a backslash before "
        "each quote and each backslash in it, and nowhere else"};
  }
  Key key = check_key(std::move(*text), max);
  if (const auto* malformed = std::get_if<Malformed>(&key))
    return Malformed{"Idempotency-Key " + malformed->why + "; send a new key for each operation, such as a UUID"};
  if (!quoted && !is_bare(value)) {
    return Malformed{
        "Idempotency-Key has a space, a quote or a comma; write such a key in quotes, with a backslash before each quote in it"};
  }
  return key;
}

}  // namespace turnstile::http
