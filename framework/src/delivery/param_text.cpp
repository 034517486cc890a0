#include "turnstile/ports/param_text.hpp"

#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <span>

#include "turnstile/error.hpp"

namespace turnstile::ports {

namespace {

constexpr std::string_view kHex = "0123456789abcdef";

std::string bytea(std::span<const std::byte> bytes) {
  std::string text = "\\x";
  text.reserve(2 + 2 * bytes.size());
  for (const std::byte byte : bytes) {
    text += kHex[std::to_integer<unsigned>(byte) >> 4U];
    text += kHex[std::to_integer<unsigned>(byte) & 15U];
  }
  return text;
}

std::string number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, value).ptr};
}

std::string time(Timestamp at) {
  check_time(at);
  const auto day = std::chrono::floor<std::chrono::days>(at);
  const std::chrono::year_month_day date(day);
  const std::chrono::hh_mm_ss clock(at - day);
  char text[48];
  const int size =
      std::snprintf(text, sizeof text, "%04d-%02u-%02u %02d:%02d:%02d.%03d+00", static_cast<int>(date.year()),
                    static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()),
                    static_cast<int>(clock.hours().count()), static_cast<int>(clock.minutes().count()),
                    static_cast<int>(clock.seconds().count()), static_cast<int>(clock.subseconds().count()));
  return {text, static_cast<std::size_t>(size)};
}

std::string checked(std::string_view text) {
  check_text(text);
  return std::string(text);
}

/// As PostgreSQL's array_out: quoted only where it must be.
std::string element(std::string_view text) {
  check_text(text);
  const bool is_null_word = text.size() == 4 && (text[0] | 0x20) == 'n' && (text[1] | 0x20) == 'u' &&
                            (text[2] | 0x20) == 'l' && (text[3] | 0x20) == 'l';
  if (!text.empty() && !is_null_word && text.find_first_of("{}\",\\ \t\n\r\v\f") == text.npos) return std::string(text);
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted += '"';
}

struct AsText {
  using Text = std::optional<std::string>;
  Text operator()(std::monostate) const { return std::nullopt; }
  Text operator()(bool value) const { return value ? "t" : "f"; }
  Text operator()(std::int64_t value) const { return std::to_string(value); }
  Text operator()(double value) const { return number(value); }
  Text operator()(std::string_view text) const { return checked(text); }
  Text operator()(std::span<const std::byte> bytes) const { return bytea(bytes); }
  Text operator()(const MessageId& id) const { return id.text(); }
  Text operator()(Timestamp at) const { return time(at); }
  Text operator()(Numeric value) const { return checked(value.text); }
  Text operator()(Jsonb value) const { return checked(value.text); }
  template <class T>
  Text operator()(std::span<const T> elements) const {
    std::string text = "{";
    for (const T& one : elements) {
      if (text.size() > 1) text += ',';
      text += element(*(*this)(one));
    }
    return text += '}';
  }
};

}  // namespace

std::optional<std::string> param_text(const Param& param) { return std::visit(AsText{}, param.value()); }

void check_text(std::string_view text) {
  if (text.find('\0') == text.npos) return;
  throw SqlError(
      "a text argument has a NUL byte, which PostgreSQL's type text cannot store; pass bytes (SQLSTATE 22021)",
      "22021");
}

void check_time(Timestamp time) {
  using namespace std::chrono;
  constexpr Timestamp kFirst = sys_days(year(1) / January / 1), kEnd = sys_days(year(10'000) / January / 1);
  if (time >= kFirst && time < kEnd) return;
  throw SqlError("a time argument is " + std::to_string(time.time_since_epoch().count()) +
                     " ms from 1970, which is not in the years 1 to 9999 (SQLSTATE 22008)",
                 "22008");
}

void throw_of_param(std::size_t index, const SqlError& error) {
  throw SqlError("argument $" + std::to_string(index + 1) + ": " + error.what(), error.sqlstate);
}

}  // namespace turnstile::ports
