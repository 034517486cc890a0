#include "message/names.hpp"

#include <algorithm>

#include "turnstile/ports/broker.hpp"

namespace turnstile::detail {

namespace {

bool is_letter_or_digit(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); }

}  // namespace

std::optional<std::string> check_topic_name(std::string_view topic) {
  if (ports::is_topic_name(topic)) return std::nullopt;
  return "'" + std::string(topic) +
         "' is not a valid topic name: Kafka allows 1 to 249 letters, digits, '.', '_' and '-'";
}

std::optional<std::string> check_schema_name(std::string_view schema) {
  constexpr std::size_t longest = 63;  // PostgreSQL's NAMEDATALEN - 1
  const bool plain =
      !schema.empty() && schema.size() <= longest && !(schema.front() >= '0' && schema.front() <= '9') &&
      std::all_of(schema.begin(), schema.end(), [](char c) { return is_letter_or_digit(c) || c == '_'; });
  if (!plain) {
    return "'" + std::string(schema) +
           "' is not a valid schema name: use 1 to 63 letters, digits and underscores, and do not begin with a digit";
  }
  if (schema.starts_with("pg_"))
    return "'" + std::string(schema) + "' begins with pg_, which PostgreSQL reserves for itself";
  return std::nullopt;
}

}  // namespace turnstile::detail

namespace turnstile::ports {

bool is_topic_name(std::string_view name) noexcept {
  constexpr std::size_t longest = 249;  // Kafka's limit
  return !name.empty() && name.size() <= longest && name != "." && name != ".." &&
         std::all_of(name.begin(), name.end(),
                     [](char c) { return detail::is_letter_or_digit(c) || c == '.' || c == '_' || c == '-'; });
}

}  // namespace turnstile::ports
