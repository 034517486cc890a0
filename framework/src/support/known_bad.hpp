#pragma once
// Protections that a test may take away, to see that its count finds out what they protect from: a count that cannot fail proves nothing.
// They are there in every build but those with TURNSTILE_FAILPOINTS, where TURNSTILE_KNOWN_BAD=NAME leaves the one of that name out.

#include <string_view>

#if defined(TURNSTILE_FAILPOINTS) && TURNSTILE_FAILPOINTS

#include <cstdlib>
#include <string>

namespace turnstile {

/// Whether this process does without the protection. Reads the environment once.
inline bool known_bad(std::string_view name) {
  static const std::string left_out = [] {
    const char* text = std::getenv("TURNSTILE_KNOWN_BAD");
    return std::string(text == nullptr ? "" : text);
  }();
  return left_out == name;
}

}  // namespace turnstile

#else

namespace turnstile {

constexpr bool known_bad(std::string_view) { return false; }

}  // namespace turnstile

#endif
