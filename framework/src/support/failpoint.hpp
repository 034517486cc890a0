#pragma once
// Places where a test can kill the process. They exist only in builds with TURNSTILE_FAILPOINTS; in other builds the
// macro is empty. TURNSTILE_FAILPOINT=NAME:N kills the process (SIGKILL) the Nth time that it reaches NAME.

#if defined(TURNSTILE_FAILPOINTS) && TURNSTILE_FAILPOINTS

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <string>
#include <string_view>

namespace turnstile::failpoint {

struct Plan {
  std::string name;
  long countdown = 0;
};

inline const Plan& plan() {
  static const Plan p = [] {
    const char* text = std::getenv("TURNSTILE_FAILPOINT");
    if (text == nullptr) return Plan{};
    const std::string_view all(text);
    const auto colon = all.find(':');
    return Plan{std::string(all.substr(0, colon)),
                colon == std::string_view::npos ? 1 : std::strtol(text + colon + 1, nullptr, 10)};
  }();
  return p;
}

inline void hit(std::string_view name) {
  if (plan().name != name) return;
  static std::atomic<long> left{plan().countdown};
  if (left.fetch_sub(1) == 1) std::raise(SIGKILL);
}

}  // namespace turnstile::failpoint

#define TURNSTILE_FAILPOINT(name) ::turnstile::failpoint::hit(name)
#else
#define TURNSTILE_FAILPOINT(name) static_cast<void>(0)
#endif
