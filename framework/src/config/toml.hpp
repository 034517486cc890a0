#pragma once
// Converts a text to a tree of the framework's types. Only this file and toml.cpp know the TOML library.

#include <map>
#include <string>
#include <string_view>
#include <variant>

#include "config/value.hpp"

namespace turnstile::detail {

struct TomlNode;
/// Ordered by key, so that everything that is made from it has the same order.
using TomlTable = std::map<std::string, TomlNode>;

struct TomlNode {
  std::variant<ConfigValue, TomlTable> content;
  int line = 0;  ///< the line of the key, from 1
  [[nodiscard]] const TomlTable* table() const noexcept { return std::get_if<TomlTable>(&content); }
};

/// The tree, or "turnstile.toml:3:8: …" for a text that is not TOML. The library's own message is included only if the
/// text cannot hold a secret.
std::variant<TomlTable, std::string> parse_toml(std::string_view text, std::string_view name);

}  // namespace turnstile::detail
