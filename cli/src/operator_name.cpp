#include "operator_name.hpp"

#include <fmt/format.h>
#include <pwd.h>
#include <unistd.h>

#include <array>

namespace turnstile::cli {

std::string operator_name() {
  const passwd* user = getpwuid(geteuid());
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) != 0) host[0] = '?';
  return fmt::format("{}@{}", user == nullptr ? std::to_string(geteuid()) : user->pw_name, host.data());
}

}  // namespace turnstile::cli
