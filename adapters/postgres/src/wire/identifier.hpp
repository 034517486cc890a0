#pragma once
// Names from the configuration, in the form for SQL.

#include <string>
#include <string_view>

namespace turnstile::postgres {

inline std::string quote_identifier(std::string_view name) {
  std::string quoted = "\"";
  for (const char c : name) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted += '"';
}

/// Letters, digits and underscores, no digit first, at most 63 bytes. PostgreSQL would cut a longer name without an
/// error.
inline bool is_plain_name(std::string_view name) {
  if (name.empty() || name.size() > 63 || (name[0] >= '0' && name[0] <= '9')) return false;
  for (const char c : name) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
    if (!plain) return false;
  }
  return true;
}

}  // namespace turnstile::postgres
