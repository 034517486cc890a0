#pragma once
// A point in a log, in the forms that people write.

#include <cstdint>
#include <string_view>
#include <variant>

#include "text.hpp"

namespace turnstile::cli {

/// A position: "1041". A time: "2026-03-01 14:05:09 UTC", "2026-03-01T14:05Z", "2026-03-01T14:05:09.123+01:00" (without
/// a zone it is UTC). Also "14:05" (today, or yesterday if that is in the future), and "10m ago". Throws UsageError
/// with examples.
std::variant<std::int64_t, Microseconds> parse_point(std::string_view text, Microseconds now);

/// A time, as above, for an option that takes no position. Throws UsageError, which names the option.
Microseconds parse_time(std::string_view option, std::string_view text, Microseconds now);

}  // namespace turnstile::cli
