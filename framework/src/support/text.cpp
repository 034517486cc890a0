#include "turnstile/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <utility>

#include "config/duration.hpp"

namespace turnstile::text {

namespace {

/// The length of the well-formed UTF-8 character at the start of `text`, or 0.
std::size_t character_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return first == 0 ? 0 : 1;
  const std::size_t length = first >= 0xC2 && first <= 0xDF   ? 2
                             : (first & 0xF0) == 0xE0         ? 3
                             : first >= 0xF0 && first <= 0xF4 ? 4
                                                              : 0;
  if (length == 0 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  // Overlong forms, surrogates, beyond U+10FFFF.
  const unsigned char second = byte(1);
  const bool malformed = (first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F) ||
                         (first == 0xF0 && second < 0x90) || (first == 0xF4 && second > 0x8F);
  return malformed ? 0 : length;
}

}  // namespace

std::string duration(std::chrono::milliseconds time) { return detail::to_text(time); }

std::string age(std::chrono::milliseconds time) {
  constexpr std::array<std::pair<const char*, std::int64_t>, 4> units{
      {{"d", 86'400}, {"h", 3'600}, {"m", 60}, {"s", 1}}};
  std::int64_t left = std::max<std::int64_t>(time.count() / 1'000, 0);
  std::string text;
  int parts = 0;
  for (const auto& [name, seconds] : units) {
    const std::int64_t n = left / seconds;
    if (n == 0 && parts == 0) continue;
    if (n > 0) text += fmt::format("{}{}{}", text.empty() ? "" : " ", n, name);
    left -= n * seconds;
    if (++parts == 2) break;
  }
  return text.empty() ? "0s" : text;
}

std::string utc(std::chrono::system_clock::time_point time) {
  const auto ms = std::chrono::floor<std::chrono::milliseconds>(time);
  const auto whole = std::chrono::floor<std::chrono::seconds>(ms);
  const std::time_t seconds = whole.time_since_epoch().count();
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  std::array<char, 32> text{};
  const auto length = std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S", &parts);
  return fmt::format("{}.{:03}Z", std::string_view(text.data(), length), (ms - whole).count());
}

std::string bytes(std::int64_t count) {
  if (count < 1000) return fmt::format("{} B", count);
  auto value = static_cast<double>(count);
  const char* unit = "";
  for (const char* next : {"kB", "MB", "GB", "TB"}) {
    if (value < 999.95) break;
    value /= 1000;
    unit = next;
  }
  return fmt::format("{:.1f} {}", value, unit);
}

std::string number(std::int64_t value) {
  std::string digits = std::to_string(value);
  const std::size_t sign = value < 0 ? 1 : 0;
  for (std::size_t at = digits.size(); at > sign + 3;) digits.insert(at -= 3, ",");
  return digits;
}

std::string printable(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const std::size_t length = character_length(text);
    if (length == 0) out += '?';
    else out += text.substr(0, length);
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return out;
}

std::string count(std::int64_t value, std::string_view singular) {
  return fmt::format("{} {}{}", number(value), singular, value == 1 ? "" : "s");
}

}  // namespace turnstile::text
