#pragma once
// Checks names for Kafka and PostgreSQL. A result is absent, or a sentence that tells the problem. It follows the name
// of the setting or of the call.

#include <optional>
#include <string>
#include <string_view>

namespace turnstile::detail {

/// Checks the characters and the length that Kafka allows for a topic.
std::optional<std::string> check_topic_name(std::string_view topic);
/// Plain letters, digits and underscores, at most 63: a name that PostgreSQL accepts without quotes.
std::optional<std::string> check_schema_name(std::string_view schema);

}  // namespace turnstile::detail
