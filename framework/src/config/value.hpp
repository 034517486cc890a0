#pragma once
// A setting as written in the file or in an environment variable, and its conversion to the program's type. Each reader
// returns a sentence that follows the setting's name ("must be …"). Absent: the value is valid.

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace turnstile::detail {

/// A value of a kind that no setting has: "an array", "a date".
struct OtherKind {
  std::string name;
};

struct ConfigValue {
  std::variant<bool, std::int64_t, double, std::string, OtherKind> value;
  /// The environment has only texts. Numbers and booleans are then read from the text.
  bool from_environment = false;
};

using Problem = std::optional<std::string>;

/// A default of the table of settings: a text in quotes, true, false or a number.
ConfigValue toml_value(std::string_view text);

/// The value in a form that a message may show: "the text 'many'", "64", "an array". Not for secrets.
std::string described(const ConfigValue& value);

Problem read(const ConfigValue& value, std::string& into);
Problem read(const ConfigValue& value, bool& into);
/// A whole number from `least` to `most`.
Problem read(const ConfigValue& value, std::int64_t least, std::int64_t most, std::int64_t& into);
/// A number from `least` to `most`, perhaps with a fraction.
Problem read(const ConfigValue& value, double least, double most, double& into);
/// The shortest form that is read as the same number: "0.01".
std::string number_text(double number);
/// At least `least`.
Problem read(const ConfigValue& value, std::chrono::milliseconds least, std::chrono::milliseconds& into);

/// Reads numbers and booleans as a text for librdkafka.
Problem read_as_text(const ConfigValue& value, std::string& into);
/// "100ms..30s"
Problem read_range(const ConfigValue& value, std::chrono::milliseconds& first, std::chrono::milliseconds& last);

/// One of a few words.
template <class Enum>
Problem read_choice(const ConfigValue& value, std::span<const std::pair<std::string_view, Enum>> choices, Enum& into);

/// "must be a, b or c, not 'd'", with a suggestion.
std::string wrong_choice(const ConfigValue& value, std::span<const std::string_view> choices);

template <class Enum>
Problem read_choice(const ConfigValue& value, std::span<const std::pair<std::string_view, Enum>> choices, Enum& into) {
  const auto* text = std::get_if<std::string>(&value.value);
  std::vector<std::string_view> names;
  for (const auto& [name, meaning] : choices) {
    if (text != nullptr && *text == name) {
      into = meaning;
      return std::nullopt;
    }
    names.push_back(name);
  }
  return wrong_choice(value, names);
}

}  // namespace turnstile::detail
