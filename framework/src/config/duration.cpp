#include "config/duration.hpp"

#include <array>
#include <charconv>
#include <limits>

namespace turnstile::detail {
namespace {

using Ms = std::chrono::milliseconds;

struct Unit {
  std::string_view name;
  Ms::rep ms;
};
// In descending order: to_text() takes the first unit that divides the duration.
constexpr std::array kUnits{Unit{"d", 86'400'000}, Unit{"h", 3'600'000}, Unit{"m", 60'000}, Unit{"s", 1'000},
                            Unit{"ms", 1}};

constexpr const char* kForm = "write a whole number and a unit (ms, s, m, h, d), such as \"30s\"";

}  // namespace

std::variant<Ms, std::string> parse_duration(std::string_view text) {
  const auto wrong = [&](const std::string& why) { return "'" + std::string(text) + "' " + why + "; " + kForm; };
  Ms::rep number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc::result_out_of_range) return wrong("is too long");
  if (error != std::errc{}) return wrong("is not a duration");
  if (number < 0) return wrong("is negative");
  const std::string_view unit_name(end, static_cast<std::size_t>(text.data() + text.size() - end));
  if (unit_name.empty()) return wrong("has no unit");
  for (const auto& unit : kUnits) {
    if (unit.name != unit_name) continue;
    if (number > std::numeric_limits<Ms::rep>::max() / unit.ms) return wrong("is too long");
    return Ms(number * unit.ms);
  }
  return wrong("is not a duration");
}

std::string to_text(Ms duration) {
  for (const auto& unit : kUnits) {
    if (duration.count() != 0 && duration.count() % unit.ms == 0) {
      return std::to_string(duration.count() / unit.ms) + std::string(unit.name);
    }
  }
  return "0ms";
}

}  // namespace turnstile::detail
