#include "config/toml.hpp"

#include <toml++/toml.h>

#include <sstream>
#include <vector>

#include "config/secrets.hpp"

namespace turnstile::detail {
namespace {

std::string kind_name(toml::node_type type) {
  switch (type) {
    case toml::node_type::array: return "an array";
    case toml::node_type::date: return "a date";
    case toml::node_type::time: return "a time of day";
    case toml::node_type::date_time: return "a date and time";
    default: return "a value of another kind";
  }
}

ConfigValue convert(const toml::node& node) {
  if (const auto* text = node.as_string()) return {text->get()};
  if (const auto* number = node.as_integer()) return {number->get()};
  if (const auto* number = node.as_floating_point()) return {number->get()};
  if (const auto* boolean = node.as_boolean()) return {boolean->get()};
  return {OtherKind{kind_name(node.type())}};
}

TomlTable convert(const toml::table& table) {
  TomlTable converted;
  for (const auto& [key, node] : table) {
    auto& into = converted[std::string(key.str())];
    into.line = static_cast<int>(key.source().begin.line);
    if (const auto* inner = node.as_table()) into.content = convert(*inner);
    else into.content = convert(node);
  }
  return converted;
}

/// Whether the library's message may quote a secret. It can quote the line of the error, and the lines above it up to
/// the start of the value.
bool quotes_secret(std::string_view text, std::size_t error_line) {
  std::vector<std::string_view> lines;
  for (std::size_t begin = 0; lines.size() < error_line && begin <= text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  for (auto line = lines.rbegin(); line != lines.rend(); ++line) {
    if (may_hold_secret(*line)) return true;
    if (line->find('=') != std::string_view::npos || line->starts_with('[')) return false;
  }
  return false;
}

}  // namespace

std::variant<TomlTable, std::string> parse_toml(std::string_view text, std::string_view name) {
  try {
    return convert(toml::parse(text, name));
  } catch (const toml::parse_error& error) {
    const auto& at = error.source().begin;
    std::ostringstream message;
    message << name << ':' << at.line << ':' << at.column << ": ";
    if (quotes_secret(text, at.line)) {
      message << "this is not valid TOML. The line is not shown, because it may hold a secret. Strings, and names that "
                 "contain a dot, must be in quotes";
    } else {
      message << "this is not valid TOML: " << error.description();
    }
    return message.str();
  }
}

}  // namespace turnstile::detail
