#include "wire/numeric.hpp"

#include <algorithm>
#include <charconv>
#include <string>

#include "turnstile/error.hpp"

namespace turnstile::postgres {

namespace {

constexpr std::uint16_t kNegative = 0x4000, kNan = 0xC000, kInfinity = 0xD000, kMinusInfinity = 0xF000;
constexpr int kMostBefore = 131'072, kMostAfter = 16'383;
/// More digits than PostgreSQL stores, and a sum of two of them fits into an int.
constexpr int kTooMany = 1'000'000;

bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }

bool same_word(std::string_view text, std::string_view word) noexcept {
  return std::equal(text.begin(), text.end(), word.begin(), word.end(),
                    [](char a, char b) { return (a >= 'A' && a <= 'Z' ? static_cast<char>(a + 32) : a) == b; });
}

[[noreturn]] void no_number(std::string_view text) {
  // Not the text itself: it may be a customer's.
  throw SqlError("a Numeric argument of " + std::to_string(text.size()) +
                     " bytes is not a decimal number, such as 12.50 or -3e8 (SQLSTATE 22P02)",
                 "22P02");
}

[[noreturn]] void too_many_digits() {
  throw SqlError(
      "a Numeric argument has more digits than PostgreSQL's type numeric stores: 131,072 before the point, 16,383 after it "
      "(SQLSTATE 22003)",
      "22003");
}

/// Floor of a quotient by 4, also for negative numbers.
int group_of(int power) noexcept { return power >= 0 ? power / 4 : -((3 - power) / 4); }

/// The number after "e". Large ones are cut.
int exponent_in(std::string_view text, std::string_view whole) {
  const bool is_negative = text.starts_with('-');
  if (is_negative || text.starts_with('+')) text.remove_prefix(1);
  if (text.empty() || !std::all_of(text.begin(), text.end(), is_digit)) no_number(whole);
  int value = 0;
  for (const char c : text) value = std::min(value * 10 + (c - '0'), kTooMany);
  return is_negative ? -value : value;
}

}  // namespace

NumericText::NumericText(std::string_view text) {
  std::string_view rest = text;
  const bool is_negative = rest.starts_with('-');
  if (is_negative || rest.starts_with('+')) rest.remove_prefix(1);
  if (same_word(rest, "infinity") || same_word(rest, "inf")) {
    sign_ = is_negative ? kMinusInfinity : kInfinity;
    return;
  }
  if (same_word(text, "nan")) {
    sign_ = kNan;
    return;
  }
  const std::size_t e = std::min(rest.find_first_of("eE"), rest.size());
  const int exponent = e == rest.size() ? 0 : exponent_in(rest.substr(e + 1), text);
  rest = rest.substr(0, e);
  const std::size_t point = std::min(rest.find('.'), rest.size());
  const auto digits = static_cast<std::size_t>(std::count_if(rest.begin(), rest.end(), is_digit));
  if (digits == 0 || digits + (point < rest.size() ? 1 : 0) != rest.size()) no_number(text);
  if (digits > kTooMany) too_many_digits();
  scale_ = std::max(0, static_cast<int>(digits - point) - exponent);
  const std::size_t first = rest.find_first_of("123456789"), last = rest.find_last_of("123456789");
  if (first != rest.npos) {
    // A digit's power of ten is before_point_ - 1 minus the digits before it.
    before_point_ = static_cast<int>(point) - static_cast<int>(first) + (first > point ? 1 : 0) + exponent;
    digits_ = rest.substr(first, last - first + 1);
    const int count = static_cast<int>(digits_.size()) - (first < point && point < last ? 1 : 0);
    first_group_ = group_of(before_point_ - 1);
    groups_ = first_group_ - group_of(before_point_ - count) + 1;
    if (is_negative) sign_ = kNegative;
  }
  if (before_point_ > kMostBefore || scale_ > kMostAfter) too_many_digits();
}

void NumericText::write(BinaryWriter& to) const noexcept {
  to.int16(static_cast<std::int16_t>(groups_));
  to.int16(static_cast<std::int16_t>(first_group_));
  to.int16(static_cast<std::int16_t>(sign_));
  to.int16(static_cast<std::int16_t>(scale_));
  int group = first_group_, power = before_point_ - 1, value = 0;
  constexpr int kPowers[] = {1, 10, 100, 1000};
  for (const char c : digits_) {
    if (c == '.') continue;
    if (group_of(power) != group) {
      to.int16(static_cast<std::int16_t>(value));
      // Zeros between two digits are digits, too: the next group follows.
      group = group_of(power);
      value = 0;
    }
    value += (c - '0') * kPowers[power - 4 * group];
    --power;
  }
  if (groups_ > 0) to.int16(static_cast<std::int16_t>(value));
}

}  // namespace turnstile::postgres
