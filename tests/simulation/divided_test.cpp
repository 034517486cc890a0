// The shipped code over a log that is divided while it is in use, under chaos (divided.hpp).

#include "tests/simulation/divided.hpp"

#include <gtest/gtest.h>

#include <sstream>

namespace turnstile::simulation {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::uint64_t kDividedSeeds = 100;  // these builds are slow
#else
constexpr std::uint64_t kDividedSeeds = 500;
#endif

TEST(DividedSimulation, all_invariants_hold) {
  const DividedOutcome outcome = run_many_divided(1, kDividedSeeds);
  ASSERT_FALSE(outcome.seed) << "seed " << *outcome.seed << ": " << outcome.why;
  EXPECT_GT(outcome.marks.moved_while_held, 0U);
  EXPECT_GT(outcome.marks.opened, 0U);
  EXPECT_GT(outcome.marks.opened_twice, 0U);
  EXPECT_GT(outcome.marks.expired, 0U);
  EXPECT_GT(outcome.marks.fenced, 0U);
  EXPECT_GT(outcome.marks.restored, 0U);
  EXPECT_GT(outcome.marks.set_moved, 0U);
  EXPECT_GT(outcome.marks.trimmed, 0U);
}

TEST(DividedSimulation, one_seed_is_one_run) {
  for (const std::uint64_t seed : {1U, 2U, 3U}) {
    DividedMarks first_marks, second_marks;
    std::ostringstream first, second;
    run_divided(seed, first_marks, &first);
    run_divided(seed, second_marks, &second);
    EXPECT_EQ(first.str(), second.str());
    EXPECT_GT(first.str().size(), 1'000U);
  }
}

}  // namespace
}  // namespace turnstile::simulation
