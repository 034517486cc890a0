#pragma once
// Formats numbers and times for people, in findings, logs, the admin endpoint and on the command line.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
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
/// A character of Unicode, and how many bytes it takes in UTF-8.
struct Character {
  char32_t code = 0;      ///< its code point
  std::size_t bytes = 0;  ///< 1 to 4
};
/// The character at the start of a text that is not empty. Absent: its bytes are not well-formed UTF-8.
std::optional<Character> first_character(std::string_view text);
/// Whether a terminal could act on it: U+0000 to U+001F, and U+007F to U+009F.
bool is_control(char32_t code);
/// Whether it changes the direction of the text after it: U+202A to U+202E, and U+2066 to U+2069.
bool is_direction(char32_t code);
/// The text with every byte that is not part of well-formed UTF-8, and every NUL, replaced by '?'.
std::string printable(std::string_view text);
/// "1 message", "2,000 messages"
std::string count(std::int64_t value, std::string_view singular);

}  // namespace turnstile::text
