#include "turnstile/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <utility>

#include "config/duration.hpp"

namespace turnstile::text {

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

std::optional<Character> first_character(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  if (lead < 0x80) return Character{lead, 1};
  const std::size_t bytes = lead >= 0xC2 && lead < 0xE0 ? 2 : (lead & 0xF0U) == 0xE0 ? 3 : lead < 0xF5 ? 4 : 0;
  if (lead < 0xC2 || bytes == 0 || text.size() < bytes) return std::nullopt;
  char32_t code = lead & (0xFFU >> (bytes + 1));
  for (std::size_t i = 1; i < bytes; ++i) {
    const auto next = static_cast<unsigned char>(text[i]);
    if ((next & 0xC0U) != 0x80) return std::nullopt;
    code = code << 6U | (next & 0x3FU);
  }
  const bool overlong = (bytes == 3 && code < 0x800) || (bytes == 4 && code < 0x10000);
  const bool impossible = (code >= 0xD800 && code < 0xE000) || code > 0x10FFFF;
  if (overlong || impossible) return std::nullopt;
  return Character{code, bytes};
}

bool is_control(char32_t code) { return code < 0x20 || (code >= 0x7F && code < 0xA0); }

bool is_direction(char32_t code) { return (code >= 0x202A && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069); }

std::string printable(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const auto next = first_character(text);
    const std::size_t bytes = next ? next->bytes : 1;
    if (next && next->code != 0) out += text.substr(0, bytes);
    else out += '?';
    text.remove_prefix(bytes);
  }
  return out;
}

std::string count(std::int64_t value, std::string_view singular) {
  return fmt::format("{} {}{}", number(value), singular, value == 1 ? "" : "s");
}

}  // namespace turnstile::text
