#pragma once
// Reads the sections of the file into the settings.

#include <string>
#include <vector>

#include "config/toml.hpp"
#include "turnstile/config.hpp"

namespace turnstile {

struct ConfigProblem {
  int line = 0;  ///< 0: none of the file's
  std::string text;
};

/// Reads what is right into `config`, with the lines of its keys, and answers what is not. Wants `config.source`.
std::vector<ConfigProblem> read_file(const TomlTable& root, Config& config);

}  // namespace turnstile
