#include "turnstile/error.hpp"

namespace turnstile {
namespace {

std::string one_line_each(const std::vector<std::string>& problems) {
  std::string text;
  for (const auto& problem : problems) {
    if (!text.empty()) text += '\n';
    text += problem;
  }
  return text;
}

}  // namespace

ConfigError::ConfigError(std::vector<std::string> all) : Error(one_line_each(all)), problems(std::move(all)) {}

}  // namespace turnstile
