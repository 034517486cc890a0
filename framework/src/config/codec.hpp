#pragma once
// How a setting of each type is read from the file or the environment, written as TOML, and described. A codec has
//
//   using Value = …;
//   static Problem read(const ConfigValue& value, Value& into);   // `into` is changed only on success
//   static std::string write(const Value& value);                 // as TOML: 500, "30s", true
//   static std::string form();                                    // for the reference page: "1 to 1024"

#include <array>
#include <chrono>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include "config/duration.hpp"
#include "config/value.hpp"

namespace turnstile::detail::codec {

inline constexpr std::int64_t kUnbounded = std::numeric_limits<std::int64_t>::max();

/// The text in quotes, with TOML's escapes.
std::string toml_text(std::string_view text);

struct Text {
  using Value = std::string;
  static Problem read(const ConfigValue& value, Value& into) { return turnstile::detail::read(value, into); }
  static std::string write(const Value& value) { return toml_text(value); }
  static std::string form() { return "text"; }
};

/// A text that `check` accepts.
template <auto check>
struct Checked : Text {
  static Problem read(const ConfigValue& value, Value& into) {
    Value text;
    if (auto problem = turnstile::detail::read(value, text)) return problem;
    if (auto problem = check(text)) return problem;
    into = std::move(text);
    return std::nullopt;
  }
};

struct Flag {
  using Value = bool;
  static Problem read(const ConfigValue& value, Value& into) { return turnstile::detail::read(value, into); }
  static std::string write(Value value) { return value ? "true" : "false"; }
  static std::string form() { return "`true` or `false`"; }
};

template <std::int64_t Least, std::int64_t Most = kUnbounded>
struct Number {
  using Value = std::int64_t;
  static Problem read(const ConfigValue& value, Value& into) {
    return turnstile::detail::read(value, Least, Most, into);
  }
  static std::string write(Value value) { return std::to_string(value); }
  static std::string form() {
    if constexpr (Most == kUnbounded) return "number from " + std::to_string(Least);
    return "number from " + std::to_string(Least) + " to " + std::to_string(Most);
  }
};

/// Bounds in milliseconds.
template <std::int64_t Least, std::int64_t Most = kUnbounded>
struct Duration {
  using Value = std::chrono::milliseconds;
  static Problem read(const ConfigValue& value, Value& into) {
    Value duration{};
    if (auto problem = turnstile::detail::read(value, Value(Least), duration)) return problem;
    if (duration > Value(Most)) return "must be at most " + to_text(Value(Most)) + ", not " + to_text(duration);
    into = duration;
    return std::nullopt;
  }
  static std::string write(Value value) { return toml_text(to_text(value)); }
  static std::string form() {
    const std::string least = Least > 0 ? " from `" + to_text(Value(Least)) + "`" : "";
    if constexpr (Most == kUnbounded) return "duration" + least;
    return "duration" + least + " to `" + to_text(Value(Most)) + "`";
  }
};

/// One of a few words. `Words` is a static array of pairs {word, value}.
template <const auto& Words>
struct Choice {
  using Value = typename std::remove_cvref_t<decltype(Words[0])>::second_type;
  static Problem read(const ConfigValue& value, Value& into) { return read_choice<Value>(value, Words, into); }
  static std::string write(const Value& value) { return toml_text(word_of(value)); }
  static std::string form() {
    std::string text;
    for (const auto& [word, meaning] : Words) text += (text.empty() ? "" : ", ") + ("`" + toml_text(word) + "`");
    return text;
  }
  static std::string_view word_of(const Value& value) {
    for (const auto& [word, meaning] : Words) {
      if (meaning == value) return word;
    }
    return {};
  }
};

}  // namespace turnstile::detail::codec
