#pragma once
// Formats values for people and as JSON.

#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "turnstile/text.hpp"

namespace turnstile::cli {

using Json = nlohmann::ordered_json;
using Microseconds = std::chrono::sys_time<std::chrono::microseconds>;

/// "2026-03-01 14:05:09 UTC"
std::string when(Microseconds time);
/// "2026-03-01T14:05:09.123456Z"
std::string iso(Microseconds time);
Json iso_or_null(const std::optional<Microseconds>& time);

/// "7d", "36h", "90m", "30s", "500ms", "2w". Absent if the text is none of them, or not positive.
std::optional<std::chrono::milliseconds> parse_duration(std::string_view text);
using text::bytes;
using text::count;
using text::duration;
using text::number;

/// One line of at most `most` characters for a terminal: control characters, and those of direction, become spaces.
std::string one_line(std::string_view text, std::size_t most);
/// Whether it is valid UTF-8 without control characters, except tab, line feed and carriage return.
bool is_text(std::string_view bytes);
std::string base64(std::string_view bytes);
/// Text unchanged, other bytes as {"base64": "…"}, absent as null.
Json content(const std::optional<std::string>& bytes);

/// Each column is as wide as its widest cell; no trailing blanks.
std::string table(const std::vector<std::vector<std::string>>& rows);
/// Whether there was one more than `most`. It takes it away.
template <typename Record>
bool cut(std::vector<Record>& found, std::int64_t most) {
  if (found.size() <= static_cast<std::size_t>(most)) return false;
  found.resize(static_cast<std::size_t>(most));
  return true;
}
/// The last line of a list with --most.
void print_more(bool more);
/// To stdout, indented, with a line feed. Invalid UTF-8 is replaced.
void print(const Json& json);

}  // namespace turnstile::cli
