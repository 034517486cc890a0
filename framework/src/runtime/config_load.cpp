// The configuration from outside: a file, and the process's environment. What they say is read by the core.

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

}  // namespace

Config Config::load(const std::filesystem::path& file) {
  return parse(read_whole(file), file.string(), process_environment);
}

}  // namespace turnstile
