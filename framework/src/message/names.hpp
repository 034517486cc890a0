#pragma once
// What Kafka and PostgreSQL allow in names. Each answer is nothing, or what is wrong: a sentence that follows the name of the setting or of
// the call.

#include <optional>
#include <string>
#include <string_view>

namespace turnstile {

/// The letters that Kafka allows in a topic's name.
std::optional<std::string> check_topic_name(std::string_view topic);
/// Plain letters, digits and underscores, at most 63: a name that PostgreSQL takes and nobody must quote.
std::optional<std::string> check_schema_name(std::string_view schema);

}  // namespace turnstile
