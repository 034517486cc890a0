// Loads the configuration from a file and from the process's environment. The other files of this folder are pure, and
// parse the contents.

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include "turnstile/config.hpp"
#include "turnstile/error.hpp"

namespace turnstile {
namespace {

std::string read_whole(const std::filesystem::path& file) {
  std::error_code ignored;
  const bool is_folder = std::filesystem::is_directory(file, ignored);
  errno = 0;
  std::ifstream in(file, std::ios::binary);
  if (!in || is_folder) {
    throw ConfigError({file.string() + ": cannot be read: " + (is_folder ? "it is a folder" : std::strerror(errno)) +
                       "; give the path of Turnstile's configuration, a TOML file"});
  }
  std::ostringstream text;
  text << in.rdbuf();
  return std::move(text).str();
}

std::optional<std::string> process_environment(std::string_view name) {
  const char* value = std::getenv(std::string(name).c_str());
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

/// The names of the variables TURNSTILE_… that are not empty. Their values are left out, because some are secrets.
std::vector<std::string> our_variables() {
  std::vector<std::string> names;
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable) {
    const std::string_view text(*variable);
    const auto equals = text.find('=');
    if (text.starts_with("TURNSTILE_") && equals != std::string_view::npos && equals + 1 < text.size())
      names.emplace_back(text.substr(0, equals));
  }
  return names;
}

}  // namespace

Config Config::load(const std::filesystem::path& file, const KafkaCheck& kafka_check) {
  Config config = parse(read_whole(file), file.string(), process_environment, kafka_check);
  config.environment = process_environment;
  config.variables = our_variables();
  return config;
}

}  // namespace turnstile
