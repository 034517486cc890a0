#pragma once
// Durations in text form: "100ms", "30s", "5m", "2h", "7d".

#include <chrono>
#include <string>
#include <string_view>
#include <variant>

namespace turnstile::detail {

/// Reads a whole number with its unit (ms, s, m, h, d), without spaces. Otherwise returns a sentence that names the
/// problem and can follow the setting's name.
std::variant<std::chrono::milliseconds, std::string> parse_duration(std::string_view text);

/// In the largest unit that shows it exactly: 90,000 ms are "90s", 60,000 ms are "1m".
std::string to_text(std::chrono::milliseconds duration);

}  // namespace turnstile::detail
