#pragma once
// Formats numbers and times for people, in findings, logs, the admin endpoint and on the command line.

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

/// Formats numbers for people.
namespace turnstile::text {

/// The time as a whole number of the largest unit that fits exactly: "7d", "36h", "1500ms".
std::string duration(std::chrono::milliseconds time);
/// The time in its two largest units: "3d 4h"; 90 s is "1m 30s".
std::string age(std::chrono::milliseconds time);
/// "2026-03-01T14:00:00.000Z"
std::string utc(std::chrono::system_clock::time_point time);
/// "12.3 MB"
std::string bytes(std::int64_t count);
/// "1,234,567"
std::string number(std::int64_t value);
/// The text with every byte that is not part of well-formed UTF-8, and every NUL, replaced by '?'.
std::string printable(std::string_view text);
/// "1 message", "2,000 messages"
std::string count(std::int64_t value, std::string_view singular);

}  // namespace turnstile::text
