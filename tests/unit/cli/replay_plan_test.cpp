// What `turnstile dlq replay --all` publishes, and how fast.

#include "cli/src/replay_plan.hpp"

#include <gtest/gtest.h>

namespace turnstile::cli {
namespace {

using namespace std::chrono_literals;

TEST(ReplayPlan, leaves_out_what_an_operator_must_decide) {
  const auto part = [](std::string_view reason) { return replay_part({.reason = reason}); };
  EXPECT_EQ(part("failed"), ReplayPart::published);
  EXPECT_EQ(part("rejected"), ReplayPart::published);
  EXPECT_EQ(part("unknown"), ReplayPart::undecided);
  EXPECT_EQ(part("forged"), ReplayPart::undecided);
  EXPECT_EQ(part("mismatch"), ReplayPart::dies_again);
  EXPECT_EQ(replay_part({.reason = "unknown", .is_asked_for = true}), ReplayPart::published) << "--reason unknown";
  EXPECT_EQ(replay_part({.reason = "duplicate", .is_asked_for = true}), ReplayPart::has_run);
  EXPECT_EQ(replay_part({.reason = "failed", .is_in_doubt = true, .is_asked_for = true}), ReplayPart::in_doubt);
}

TEST(ReplayPlan, takes_an_edited_letter_whose_cause_was_in_the_record) {
  for (const char* reason : {"missing_id", "killed_process"}) {
    EXPECT_EQ(replay_part({.reason = reason}), ReplayPart::dies_again) << reason;
    EXPECT_EQ(replay_part({.reason = reason, .is_edited = true}), ReplayPart::published) << reason;
  }
  for (const char* reason : {"mismatch", "unknown", "dropped", "duplicate"})
    EXPECT_EQ(replay_part({.reason = reason, .is_edited = true}), replay_part({.reason = reason})) << reason;
}

TEST(ReplayPlan, reads_a_rate) {
  EXPECT_EQ(parse_rate("100/s"), 10ms);
  EXPECT_EQ(parse_rate("30/m"), 2s);
  EXPECT_EQ(parse_rate("1/h"), 1h);
  for (const char* wrong :
       {"", "100", "0/s", "-1/s", "1.5/s", "100/d", "/s", "1000001/s", "99999999999999999999/s", "5 /s"})
    EXPECT_EQ(parse_rate(wrong), std::nullopt) << wrong;
}

TEST(ReplayPlan, goes_evenly_and_makes_no_burst_after_a_delay) {
  Pace pace(10ms);
  const auto start = Pace::Clock::time_point{} + 1h;
  EXPECT_EQ(pace.next(start), start);
  EXPECT_EQ(pace.next(start), start + 10ms);
  EXPECT_EQ(pace.next(start + 12ms), start + 20ms);
  const auto later = start + 5s;
  EXPECT_EQ(pace.next(later), later);
  EXPECT_EQ(pace.next(later), later + 10ms);
  Pace unbounded(std::nullopt);
  EXPECT_EQ(unbounded.next(start), start);
  EXPECT_EQ(unbounded.next(start), start);
}

}  // namespace
}  // namespace turnstile::cli
