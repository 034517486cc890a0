#include "config/value.hpp"

#include <charconv>
#include <limits>

#include "config/duration.hpp"
#include "config/suggest.hpp"

namespace turnstile::detail {
namespace {

std::optional<std::int64_t> whole_number(std::string_view text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::optional<double> any_number(std::string_view text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::optional<bool> yes_or_no(std::string_view text) {
  if (text == "true" || text == "1" || text == "on" || text == "yes") return true;
  if (text == "false" || text == "0" || text == "off" || text == "no") return false;
  return std::nullopt;
}

struct Describe {
  std::string operator()(bool b) const { return b ? "true" : "false"; }
  std::string operator()(std::int64_t n) const { return std::to_string(n); }
  std::string operator()(double) const { return "a number with a fraction"; }
  std::string operator()(const std::string& text) const {
    return text.empty() ? "an empty string" : "the string '" + text + "'";
  }
  std::string operator()(const OtherKind& other) const { return other.name; }
};

std::string bounds_text(std::int64_t least, std::int64_t most) {
  if (most == std::numeric_limits<std::int64_t>::max()) return "a whole number of at least " + std::to_string(least);
  return "a whole number from " + std::to_string(least) + " to " + std::to_string(most);
}

/// The most likely mistake is a number in quotes, so the message tells how to write it.
std::string without_quotes(const ConfigValue& value) {
  const auto* text = std::get_if<std::string>(&value.value);
  const bool is_number = !value.from_environment && text != nullptr && whole_number(*text);
  return is_number ? "; write it without quotes" : "";
}

}  // namespace

ConfigValue toml_value(std::string_view text) {
  if (text.size() >= 2 && text.front() == '"') return {std::string(text.substr(1, text.size() - 2))};
  if (text == "true" || text == "false") return {text == "true"};
  if (const auto number = whole_number(text)) return {*number};
  if (const auto number = any_number(text)) return {*number};
  return {OtherKind{"'" + std::string(text) + "', which is not a TOML value"}};
}

std::string described(const ConfigValue& value) { return std::visit(Describe{}, value.value); }

Problem read(const ConfigValue& value, std::string& into) {
  const auto* text = std::get_if<std::string>(&value.value);
  if (text == nullptr) return "must be a string in quotes, not " + described(value);
  into = *text;
  return std::nullopt;
}

Problem read(const ConfigValue& value, bool& into) {
  if (const auto* written = std::get_if<bool>(&value.value)) {
    into = *written;
    return std::nullopt;
  }
  const auto* text = std::get_if<std::string>(&value.value);
  if (value.from_environment && text != nullptr) {
    if (const auto meant = yes_or_no(*text)) {
      into = *meant;
      return std::nullopt;
    }
  }
  return "must be true or false, not " + described(value);
}

Problem read(const ConfigValue& value, std::int64_t least, std::int64_t most, std::int64_t& into) {
  std::optional<std::int64_t> number;
  if (const auto* written = std::get_if<std::int64_t>(&value.value)) number = *written;
  const auto* text = std::get_if<std::string>(&value.value);
  if (value.from_environment && text != nullptr) number = whole_number(*text);
  if (!number || *number < least || *number > most) {
    return "must be " + bounds_text(least, most) + ", not " + described(value) + without_quotes(value);
  }
  into = *number;
  return std::nullopt;
}

Problem read(const ConfigValue& value, double least, double most, double& into) {
  std::optional<double> number;
  if (const auto* whole = std::get_if<std::int64_t>(&value.value)) number = static_cast<double>(*whole);
  if (const auto* written = std::get_if<double>(&value.value)) number = *written;
  const auto* text = std::get_if<std::string>(&value.value);
  if (value.from_environment && text != nullptr) number = any_number(*text);
  // Written so that nan is refused.
  if (!number || !(*number >= least && *number <= most)) {
    return "must be a number from " + number_text(least) + " to " + number_text(most) + ", not " +
           (number ? number_text(*number) : described(value));
  }
  into = *number;
  return std::nullopt;
}

std::string number_text(double number) {
  std::string digits(32, '\0');
  const auto [end, error] = std::to_chars(digits.data(), digits.data() + digits.size(), number);
  digits.resize(static_cast<std::size_t>(end - digits.data()));
  return digits;
}

Problem read(const ConfigValue& value, std::chrono::milliseconds least, std::chrono::milliseconds& into) {
  const auto* text = std::get_if<std::string>(&value.value);
  if (text == nullptr) {
    return "must be a duration in quotes, a whole number and a unit (ms, s, m, h, d) such as \"30s\", not " +
           described(value);
  }
  const auto parsed = parse_duration(*text);
  if (const auto* why = std::get_if<std::string>(&parsed)) return *why;
  const auto duration = std::get<std::chrono::milliseconds>(parsed);
  if (duration < least) return "must be at least " + to_text(least) + ", not " + *text;
  into = duration;
  return std::nullopt;
}

Problem read_as_text(const ConfigValue& value, std::string& into) {
  if (const auto* text = std::get_if<std::string>(&value.value)) {
    into = *text;
  } else if (std::holds_alternative<OtherKind>(value.value)) {
    return "must be a string, a number, true or false, not " + described(value);
  } else if (const auto* number = std::get_if<double>(&value.value)) {
    into = number_text(*number);
  } else {
    into = described(value);
  }
  return std::nullopt;
}

Problem read_range(const ConfigValue& value, std::chrono::milliseconds& first, std::chrono::milliseconds& last) {
  using std::chrono::milliseconds;
  const auto* text = std::get_if<std::string>(&value.value);
  const auto dots = text == nullptr ? std::string::npos : text->find("..");
  if (dots == std::string::npos) {
    return "must be the shortest and the longest wait, such as \"100ms..30s\", not " + described(value);
  }
  const auto from = parse_duration(std::string_view(*text).substr(0, dots));
  const auto to = parse_duration(std::string_view(*text).substr(dots + 2));
  for (const auto* end : {&from, &to}) {
    if (const auto* why = std::get_if<std::string>(end)) return *why;
  }
  const auto shortest = std::get<milliseconds>(from);
  const auto longest = std::get<milliseconds>(to);
  if (shortest < milliseconds(1)) return "must begin at 1ms or more, not at " + to_text(shortest);
  if (longest < shortest)
    return "has a longest wait of " + to_text(longest) + ", which is below its first wait of " + to_text(shortest);
  first = shortest;
  last = longest;
  return std::nullopt;
}

std::string wrong_choice(const ConfigValue& value, std::span<const std::string_view> choices) {
  std::string list;
  for (std::size_t i = 0; i < choices.size(); ++i) {
    if (i > 0) list += i + 1 == choices.size() ? " or " : ", ";
    list += choices[i];
  }
  std::string text = "must be " + list + ", not " + described(value);
  if (const auto* word = std::get_if<std::string>(&value.value)) {
    if (const auto near = suggest(*word, choices)) text += "; did you mean '" + std::string(*near) + "'?";
  }
  return text;
}

}  // namespace turnstile::detail
