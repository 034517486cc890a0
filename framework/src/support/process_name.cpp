#include "support/process_name.hpp"

#include <unistd.h>

#include <array>
#include <cstdint>

#include "turnstile/tokens.hpp"

namespace turnstile {

std::string process_name(std::string_view client, std::string_view host, std::uint32_t pid) {
  return std::string(client) + "@" + std::string(host) + ":" + std::to_string(pid);
}

}  // namespace turnstile

namespace turnstile::detail {

std::string host_name() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

std::string own_name(std::string_view client) {
  return process_name(client, host_name(), static_cast<std::uint32_t>(::getpid()));
}

}  // namespace turnstile::detail
