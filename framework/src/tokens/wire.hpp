#pragma once
// Converts events to the bytes of a record and back. decode() accepts any bytes: at least it returns Unknown.

#include <string>
#include <string_view>

#include "tokens/event.hpp"

namespace turnstile::tokens {

/// Longer records are not read (a Keep of 1,000 limiters has about 40 kB).
inline constexpr std::size_t kLongestRecord = 1'000'000;

std::string encode(const Event& event);
Event decode(std::string_view bytes);

}  // namespace turnstile::tokens
