#pragma once
// Values that must never be printed, logged or quoted in an error.

#include <map>
#include <string>
#include <string_view>

namespace turnstile {

/// True for librdkafka's settings that hold a secret: passwords, keys and tokens.
bool is_secret_kafka_key(std::string_view key);

/// The same settings, with "***" for the value of each secret: the only form in which they may be shown.
std::map<std::string, std::string> redacted(const std::map<std::string, std::string>& kafka);

/// True when a line of a configuration file may hold a secret, by any of the words in it. Errs on the safe side.
bool may_hold_secret(std::string_view line);

}  // namespace turnstile
