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

Code code_of(const std::exception& error, Code otherwise) noexcept {
  const auto* ours = dynamic_cast<const Error*>(&error);
  return ours == nullptr ? otherwise : ours->code();
}

ConfigError::ConfigError(std::vector<std::string> all)
    : Error(Code::config_invalid, one_line_each(all)), problems(std::move(all)) {}

}  // namespace turnstile
