#pragma once
// Runs plans, and makes failing plans smaller.

#include <functional>
#include <optional>
#include <ostream>
#include <string>

#include "tests/simulation/marks.hpp"
#include "tests/simulation/plan.hpp"

namespace turnstile::simulation {

/// The broken invariant. Absent: none was broken.
std::optional<std::string> run(const Plan& plan, Marks& marks, std::ostream* trace = nullptr);

/// The same failure, or another, with fewer faults and in less time.
Plan shrink(Plan plan);

struct Failure {
  Plan plan;
  std::string why;
};
struct Outcome {
  std::uint64_t runs = 0;
  Marks marks{};
  std::optional<Failure> failure;  ///< of the lowest failing seed, as it was run
};
/// Runs seeds from `first`, until one fails or `count` are done, on `threads` threads.
Outcome run_many(std::uint64_t first, std::uint64_t count, unsigned threads, bool hasty_host = false);

}  // namespace turnstile::simulation
