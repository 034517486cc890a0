#pragma once
// Durations in text form: "100ms", "30s", "5m", "2h", "7d".

#include <chrono>
#include <string>
#include <string_view>
#include <variant>

namespace turnstile {

/// A whole number and a unit (ms, s, m, h, d), nothing between or round them. Otherwise a sentence that says what is
/// wrong, fit to follow the setting's name.
std::variant<std::chrono::milliseconds, std::string> parse_duration(std::string_view text);

/// In the largest unit that shows it exactly: 90,000 ms are "90s", 60,000 ms are "1m".
std::string to_text(std::chrono::milliseconds duration);

}  // namespace turnstile
