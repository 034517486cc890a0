#include "tests/simulation/simulate.hpp"

#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/simulation/world.hpp"

namespace turnstile::simulation {

std::optional<std::string> run(const Plan& plan, Marks& marks, std::ostream* trace) {
  try {
    World(plan, marks, trace).run();
    return std::nullopt;
  } catch (const std::exception& error) {
    return error.what();
  }
}

Plan shrink(Plan plan) {
  const auto still_fails = [](const Plan& smaller) {
    Marks marks{};
    return run(smaller, marks).has_value();
  };
  for (bool smaller = true; std::exchange(smaller, false);) {
    for (std::size_t fault = 0; fault < kFaults; ++fault) {
      if (!plan.faults[fault]) continue;
      Plan without = plan;
      without.faults.reset(fault);
      if (!still_fails(without)) continue;
      plan = without;
      smaller = true;
    }
    Plan shorter = plan;
    shorter.chaos -= shorter.chaos / 4;
    if (shorter.chaos < kSecond / 2 || !still_fails(shorter)) continue;
    plan = shorter;
    smaller = true;
  }
  return plan;
}

Outcome run_many(std::uint64_t first, std::uint64_t count, unsigned threads, bool hasty_host) {
  Outcome all;
  std::mutex mutex;
  std::atomic<std::uint64_t> next{first};
  std::atomic<bool> failed{false};
  const auto work = [&] {
    Marks marks{};
    std::uint64_t runs = 0;
    for (std::uint64_t seed = next++; seed < first + count && !failed; seed = next++) {
      Plan plan = plan_for(seed);
      plan.hasty_host = hasty_host;
      const auto why = run(plan, marks);
      ++runs;
      if (!why) continue;
      failed = true;
      const std::lock_guard lock(mutex);
      if (!all.failure || plan.seed < all.failure->plan.seed) all.failure = Failure{plan, *why};
    }
    const std::lock_guard lock(mutex);
    all.runs += runs;
    for (std::size_t i = 0; i < marks.size(); ++i) all.marks[i] += marks[i];
  };
  std::vector<std::jthread> workers;
  for (unsigned i = 0; i < threads; ++i) workers.emplace_back(work);
  workers.clear();
  return all;
}

}  // namespace turnstile::simulation
