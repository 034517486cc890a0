#pragma once
// Reads the sections of the file into the settings.

#include <string>
#include <vector>

#include "config/toml.hpp"
#include "turnstile/config.hpp"

namespace turnstile::detail {

struct ConfigProblem {
  int line = 0;  ///< 0: not in the file
  std::string text;
};

/// Reads the valid settings into `config`, with the lines of their keys, and returns the problems of the others. Needs
/// `config.source`.
std::vector<ConfigProblem> read_file(const TomlTable& root, Config& config);

}  // namespace turnstile::detail
