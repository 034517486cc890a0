#include "point.hpp"

#include <fmt/format.h>

#include <charconv>
#include <optional>

#include "command.hpp"

namespace turnstile::cli {

namespace {

using std::chrono::microseconds;

/// Takes parts from the front of a text.
class Cursor {
 public:
  explicit Cursor(std::string_view text) : rest_(text) {}

  /// A number of exactly `count` digits, within bounds.
  std::optional<int> digits(std::size_t count, int low, int high) {
    int value = 0;
    if (rest_.size() < count) return std::nullopt;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + count, value);
    if (error != std::errc{} || end != rest_.data() + count || rest_[0] == '-' || value < low || value > high)
      return std::nullopt;
    rest_.remove_prefix(count);
    return value;
  }
  bool take(std::string_view one_of) {
    if (rest_.empty() || one_of.find(rest_[0]) == std::string_view::npos) return false;
    rest_.remove_prefix(1);
    return true;
  }
  bool take_word(std::string_view word) {
    if (!rest_.starts_with(word)) return false;
    rest_.remove_prefix(word.size());
    return true;
  }
  [[nodiscard]] char next() const { return rest_.empty() ? '\0' : rest_[0]; }
  [[nodiscard]] bool done() const { return rest_.empty(); }

 private:
  std::string_view rest_;
};

/// "14:05", "14:05:09", "14:05:09.123": since midnight.
std::optional<microseconds> time_of_day(Cursor& at) {
  const auto hour = at.digits(2, 0, 23);
  if (!hour || !at.take(":")) return std::nullopt;
  const auto minute = at.digits(2, 0, 59);
  if (!minute) return std::nullopt;
  microseconds time = std::chrono::hours(*hour) + std::chrono::minutes(*minute);
  if (!at.take(":")) return time;
  const auto second = at.digits(2, 0, 59);
  if (!second) return std::nullopt;
  time += std::chrono::seconds(*second);
  if (!at.take(".")) return time;
  std::int64_t unit = 100'000;
  bool any = false;
  for (; at.next() >= '0' && at.next() <= '9'; unit /= 10, any = true)
    time += microseconds(unit * (at.next() - '0')), at.take("0123456789");
  return any ? std::optional(time) : std::nullopt;
}

/// The offset to subtract to get UTC.
std::optional<microseconds> zone(Cursor& at) {
  at.take(" ");
  if (at.done() || at.take("Z") || at.take_word("UTC")) return microseconds{0};
  const bool east = at.next() == '+';
  if (!at.take("+-")) return std::nullopt;
  const auto hours = at.digits(2, 0, 14);
  at.take(":");
  const auto minutes = at.digits(2, 0, 59);
  if (!hours || !minutes) return std::nullopt;
  const microseconds offset = std::chrono::hours(*hours) + std::chrono::minutes(*minutes);
  return east ? offset : -offset;
}

std::optional<Microseconds> date_and_time(std::string_view text) {
  Cursor at(text);
  const auto year = at.digits(4, 1970, 9999);
  if (!year || !at.take("-")) return std::nullopt;
  const auto month = at.digits(2, 1, 12);
  if (!month || !at.take("-")) return std::nullopt;
  const auto day = at.digits(2, 1, 31);
  if (!day || !at.take(" T")) return std::nullopt;
  const std::chrono::year_month_day date{std::chrono::year(*year), std::chrono::month(static_cast<unsigned>(*month)),
                                         std::chrono::day(static_cast<unsigned>(*day))};
  const auto time = time_of_day(at);
  const auto offset = zone(at);
  if (!date.ok() || !time || !offset || !at.done()) return std::nullopt;
  return Microseconds{std::chrono::sys_days(date)} + *time - *offset;
}

std::optional<Microseconds> time_today(std::string_view text, Microseconds now) {
  Cursor at(text);
  const auto time = time_of_day(at);
  const auto offset = zone(at);
  if (!time || !offset || !at.done()) return std::nullopt;
  Microseconds point = Microseconds{std::chrono::floor<std::chrono::days>(now)} + *time - *offset;
  while (point > now) point -= std::chrono::days(1);
  return point;
}

std::optional<Microseconds> before_now(std::string_view text, Microseconds now) {
  constexpr std::string_view kAgo = " ago";
  if (!text.ends_with(kAgo)) return std::nullopt;
  const auto span = parse_duration(text.substr(0, text.size() - kAgo.size()));
  return span ? std::optional(now - *span) : std::nullopt;
}

std::optional<Microseconds> any_time(std::string_view text, Microseconds now) {
  if (const auto time = date_and_time(text)) return time;
  if (const auto time = time_today(text, now)) return time;
  return before_now(text, now);
}

}  // namespace

std::variant<std::int64_t, Microseconds> parse_point(std::string_view text, Microseconds now) {
  std::int64_t position = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), position);
  if (error == std::errc{} && end == text.data() + text.size() && position >= 0) return position;
  if (const auto time = any_time(text, now)) return *time;
  throw UsageError(fmt::format(
      "\"{}\" is neither a position nor a time; write 1041, \"2026-03-01 14:05:09\" (UTC unless a zone follows, as in "
      "2026-03-01T14:05:09+01:00), 14:05 or \"10m ago\"",
      one_line(text, 80)));
}

Microseconds parse_time(std::string_view option, std::string_view text, Microseconds now) {
  if (const auto time = any_time(text, now)) return *time;
  throw UsageError(fmt::format("{} {}: not a time; write \"2026-03-01 14:05:09\", 14:05 or \"10m ago\"", option,
                               one_line(text, 40)));
}

}  // namespace turnstile::cli
