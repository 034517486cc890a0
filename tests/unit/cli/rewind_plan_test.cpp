// How far `turnstile rewind` moves a group back.

#include "cli/src/rewind_plan.hpp"

#include <gtest/gtest.h>

namespace turnstile::cli {
namespace {

TEST(RewindPlan, goes_back_and_never_forward) {
  const auto plan = plan_rewind({{.partition = 0, .committed = 100, .at_time = 40},
                                 {.partition = 1, .committed = 30, .at_time = 40},
                                 {.partition = 2, .committed = 40, .at_time = 40},
                                 {.partition = 3, .committed = {}, .at_time = 40},
                                 {.partition = 4, .committed = 100, .at_time = {}}});
  ASSERT_EQ(plan.size(), 5U);
  EXPECT_EQ(plan[0].to, 40);
  EXPECT_EQ(plan[0].records(), 60);
  for (std::size_t i = 1; i < plan.size(); ++i) {
    EXPECT_EQ(plan[i].to, std::nullopt) << i;
    EXPECT_EQ(plan[i].records(), 0) << i;
  }
}

TEST(RewindPlan, counts_the_offsets_below_the_progress) {
  const Rewind rewind{0, 100, 40};
  EXPECT_EQ(settled_records(rewind, 100), 60);
  EXPECT_EQ(settled_records(rewind, 120), 60);
  EXPECT_EQ(settled_records(rewind, 70), 30);
  EXPECT_EQ(settled_records(rewind, 10), 0);
  EXPECT_EQ(settled_records(Rewind{0, 100, std::nullopt}, 100), 0);
}

}  // namespace
}  // namespace turnstile::cli
