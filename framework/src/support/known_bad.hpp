#pragma once
// Protections that a test can switch off, to check that its measurement finds the damage: a measurement that cannot
// fail proves nothing. All builds have the protections. In builds with TURNSTILE_FAILPOINTS, TURNSTILE_KNOWN_BAD=NAME
// switches the protection NAME off.

#include <string_view>

#if defined(TURNSTILE_FAILPOINTS) && TURNSTILE_FAILPOINTS

#include <cstdlib>
#include <string>

namespace turnstile::detail {

/// Whether this process runs without the protection. Reads the environment once.
inline bool known_bad(std::string_view name) {
  static const std::string left_out = [] {
    const char* text = std::getenv("TURNSTILE_KNOWN_BAD");
    return std::string(text == nullptr ? "" : text);
  }();
  return left_out == name;
}

}  // namespace turnstile::detail

#else

namespace turnstile::detail {

constexpr bool known_bad(std::string_view) { return false; }

}  // namespace turnstile::detail

#endif
