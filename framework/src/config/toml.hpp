#pragma once
// Converts a text to a tree of the framework's types. The only place that knows the TOML library.

#include <map>
#include <string>
#include <string_view>
#include <variant>

#include "config/value.hpp"

namespace turnstile {

struct TomlNode;
/// Ordered by key, so that everything that is made of it has one order.
using TomlTable = std::map<std::string, TomlNode>;

struct TomlNode {
  std::variant<ConfigValue, TomlTable> content;
  int line = 0;  ///< where the key stands, from 1
  [[nodiscard]] const TomlTable* table() const noexcept { return std::get_if<TomlTable>(&content); }
};

/// The tree, or "turnstile.toml:3:8: …" for a text that is no TOML. What the library says of the error is given on
/// only where the text cannot hold a secret.
std::variant<TomlTable, std::string> parse_toml(std::string_view text, std::string_view name);

}  // namespace turnstile
