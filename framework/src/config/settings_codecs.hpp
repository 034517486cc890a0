#pragma once
// How the values of particular settings are read, checked and written: what codec.hpp has no general form for. The
// table that uses them is settings_table.cpp.

#include <chrono>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "config/addresses.hpp"
#include "config/check.hpp"
#include "config/codec.hpp"
#include "config/settings_table.hpp"
#include "message/message_id.hpp"
#include "message/names.hpp"
#include "message/reply.hpp"

namespace turnstile::detail::setting {

/// A text that may hold a password or a token, so it is written as ***. `check` accepts it.
template <auto check>
struct SecretText {
  using Value = Secret;
  static Problem read(const ConfigValue& value, Value& into) {
    const auto* text = std::get_if<std::string>(&value.value);
    if (text == nullptr) return "must be a string in quotes";
    if (auto problem = check(*text)) return problem;
    into = Secret(*text);
    return std::nullopt;
  }
  static std::string write(const Value& value) { return value.empty() ? "" : codec::toml_text("***"); }
  static std::string form() { return "text"; }
};

/// `tracing.sample`
struct Ratio {
  using Value = double;
  static Problem read(const ConfigValue& value, Value& into) { return turnstile::detail::read(value, 0, 1, into); }
  static std::string write(Value value) { return number_text(value); }
  static std::string form() { return "number from 0 to 1"; }
};

// The bounds of the token log (tokens/line.hpp, tokens/state.hpp).
inline constexpr std::int64_t kHighestLimit = 1'000'000'000;
inline constexpr std::size_t kLongestLimiter = 255;

inline Problem check_not_empty(const std::string& text) {
  return text.empty() ? Problem("must not be empty") : std::nullopt;
}

inline Problem check_limiter(const std::string& name) {
  if (auto problem = check_not_empty(name)) return problem;
  if (name.size() <= kLongestLimiter) return std::nullopt;
  return "has " + std::to_string(name.size()) + " bytes; the name of a limiter has at most " +
         std::to_string(kLongestLimiter);
}

inline Problem check_message_id(const std::string& text) {
  auto source = IdSource::parse(text);
  if (auto* why = std::get_if<std::string>(&source)) return std::move(*why);
  return std::nullopt;
}

/// An empty text is allowed, and means NAME.dlq.
inline Problem check_dead_letter(const std::string& topic) {
  return topic.empty() ? std::nullopt : check_topic_name(topic);
}

inline Problem check_reply_topics(const std::string& text) {
  const auto topics = split_names(text);
  if (topics.empty()) return "names no topic; list the topics that replies may go to, separated by commas";
  for (const std::string& topic : topics) {
    if (auto problem = check_topic_name(topic)) return "'" + topic + "': " + *problem;
  }
  return std::nullopt;
}

/// `limit`: what 0 and negative numbers mean to a user is said here.
struct Limit : codec::Number<1, kHighestLimit> {
  static Problem read(const ConfigValue& value, Value& into) {
    const auto* number = std::get_if<std::int64_t>(&value.value);
    const auto* text = std::get_if<std::string>(&value.value);
    if ((number != nullptr && *number == 0) || (value.from_environment && text != nullptr && *text == "0")) {
      return "is 0, so no handler could run; set at least 1, or remove limit: then only the number of workers limits the topic";
    }
    if (number != nullptr && *number < 0) {
      return "is " + std::to_string(*number) + ", but must be at least 1: it is the largest number of running handlers";
    }
    return Number::read(value, into);
  }
};

}  // namespace turnstile::detail::setting
