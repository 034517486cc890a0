#pragma once
// Values that must never be printed, logged or quoted in an error.

#include <map>
#include <string>
#include <string_view>

namespace turnstile::detail {

/// Whether a setting of librdkafka holds a secret: a password, a key or a token.
bool is_secret_kafka_key(std::string_view key);

/// The same settings with "***" for the value of each secret. Settings may be shown only in this form.
std::map<std::string, std::string> redacted(const std::map<std::string, std::string>& kafka);

/// Whether a line of a configuration file may hold a secret, judged by the words in it. If in doubt, the answer is
/// true.
bool may_hold_secret(std::string_view line);

}  // namespace turnstile::detail
