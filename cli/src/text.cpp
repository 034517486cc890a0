#include "text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <ctime>
#include <utility>

namespace turnstile::cli {

namespace {

constexpr std::int64_t kSecond = 1000, kMinute = 60 * kSecond, kHour = 60 * kMinute, kDay = 24 * kHour;

std::tm utc(Microseconds time) {
  const std::time_t seconds = std::chrono::floor<std::chrono::seconds>(time).time_since_epoch().count();
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  return parts;
}

std::string formatted(Microseconds time, const char* pattern) {
  const std::tm parts = utc(time);
  std::array<char, 40> text{};
  return {text.data(), std::strftime(text.data(), text.size(), pattern, &parts)};
}

}  // namespace

std::string when(Microseconds time) { return formatted(time, "%Y-%m-%d %H:%M:%S UTC"); }

std::string iso(Microseconds time) {
  const auto second = std::chrono::floor<std::chrono::seconds>(time);
  return fmt::format("{}.{:06}Z", formatted(time, "%Y-%m-%dT%H:%M:%S"), (time - second).count());
}

Json iso_or_null(const std::optional<Microseconds>& time) { return time ? Json(iso(*time)) : Json(nullptr); }

std::optional<std::chrono::milliseconds> parse_duration(std::string_view text) {
  std::int64_t value = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || value <= 0) return std::nullopt;
  const std::string_view unit(rest, static_cast<std::size_t>(text.data() + text.size() - rest));
  constexpr std::array<std::pair<std::string_view, std::int64_t>, 6> units{
      {{"ms", 1}, {"s", kSecond}, {"m", kMinute}, {"h", kHour}, {"d", kDay}, {"w", 7 * kDay}}};
  for (const auto& [name, factor] : units) {
    if (unit == name && value <= INT64_MAX / factor / 1000) return std::chrono::milliseconds(value * factor);
  }
  return std::nullopt;
}

std::string one_line(std::string_view text, std::size_t most) {
  std::string line;
  std::size_t shown = 0;
  while (!text.empty()) {
    if (shown++ == most) return line + "…";
    const auto next = text::first_character(text);
    const std::size_t bytes = next ? next->bytes : 1;
    if (!next) line += '?';
    else if (text::is_control(next->code) || text::is_direction(next->code)) line += ' ';
    else line += text.substr(0, bytes);
    text.remove_prefix(bytes);
  }
  return line;
}

bool is_text(std::string_view bytes) {
  while (!bytes.empty()) {
    const auto next = text::first_character(bytes);
    const bool layout = bytes[0] == '\t' || bytes[0] == '\n' || bytes[0] == '\r';
    if (!next || (text::is_control(next->code) && !layout)) return false;
    bytes.remove_prefix(next->bytes);
  }
  return true;
}

std::string base64(std::string_view bytes) {
  constexpr std::string_view alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    const auto byte = [&](std::size_t i) -> std::uint32_t {
      return at + i < bytes.size() ? static_cast<unsigned char>(bytes[at + i]) : 0U;
    };
    const std::uint32_t group = byte(0) << 16U | byte(1) << 8U | byte(2);
    for (const unsigned shift : {18U, 12U, 6U, 0U}) text += alphabet[group >> shift & 63U];
  }
  const std::size_t padding = (3 - bytes.size() % 3) % 3;
  text.replace(text.size() - padding, padding, padding, '=');
  return text;
}

Json content(const std::optional<std::string>& bytes) {
  if (!bytes) return nullptr;
  if (is_text(*bytes)) return *bytes;
  return Json{{"base64", base64(*bytes)}};
}

std::string table(const std::vector<std::vector<std::string>>& rows) {
  const auto width_of = [](std::string_view cell) {
    return static_cast<std::size_t>(
        std::count_if(cell.begin(), cell.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
  };
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t at = 0; at < row.size(); ++at) widths[at] = std::max(widths[at], width_of(row[at]));
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t at = 0; at < row.size(); ++at) {
      line += row[at];
      line.append(widths[at] - width_of(row[at]) + 2, ' ');
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  }
  return text;
}

void print_more(bool more) {
  if (more) fmt::print("there are more: --most N shows N of them\n");
}

void print(const Json& json) {
  const std::string text = json.dump(2, ' ', false, Json::error_handler_t::replace);
  fmt::print("{}\n", text);
}

}  // namespace turnstile::cli
