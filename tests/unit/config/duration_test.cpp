#include "config/duration.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace turnstile::detail {
namespace {

using namespace std::chrono_literals;
using std::chrono::milliseconds;

std::string refusal(std::string_view text) {
  const auto parsed = parse_duration(text);
  const auto* why = std::get_if<std::string>(&parsed);
  return why == nullptr ? "" : *why;
}

TEST(DurationTest, a_number_and_a_unit) {
  const std::vector<std::pair<std::string_view, milliseconds>> cases{{"100ms", 100ms}, {"30s", 30s}, {"5m", 5min},
                                                                     {"2h", 2h},       {"7d", 168h}, {"0s", 0ms}};
  for (const auto& [text, expected] : cases) {
    ASSERT_EQ(refusal(text), "") << text;
    EXPECT_EQ(std::get<milliseconds>(parse_duration(text)), expected) << text;
  }
}

TEST(DurationTest, anything_else_is_refused_with_the_form_that_it_has) {
  const std::string form = "; write a whole number and a unit (ms, s, m, h, d), such as \"30s\"";
  EXPECT_EQ(refusal("30"), "'30' has no unit" + form);
  EXPECT_EQ(refusal("-5s"), "'-5s' is negative" + form);
  EXPECT_EQ(refusal("99999999999999999999s"), "'99999999999999999999s' is too long" + form);
  EXPECT_EQ(refusal("9223372036854775807d"), "'9223372036854775807d' is too long" + form);
  for (const char* text : {"", "s", "30 s", " 30s", "30s ", "30S", "1.5s", "30sec", "1h30m", "+5s"}) {
    EXPECT_EQ(refusal(text), "'" + std::string(text) + "' is not a duration" + form);
  }
}

TEST(DurationTest, is_shown_in_the_largest_unit_that_fits) {
  EXPECT_EQ(to_text(0ms), "0ms");
  EXPECT_EQ(to_text(1500ms), "1500ms");
  EXPECT_EQ(to_text(90s), "90s");
  EXPECT_EQ(to_text(60s), "1m");
  EXPECT_EQ(to_text(168h), "7d");
}

RC_GTEST_PROP(DurationTest, what_is_shown_is_read_back, ()) {
  const milliseconds duration(*rc::gen::inRange<std::int64_t>(0, 1'000'000'000'000));
  RC_ASSERT(std::get<milliseconds>(parse_duration(to_text(duration))) == duration);
}

}  // namespace
}  // namespace turnstile::detail
