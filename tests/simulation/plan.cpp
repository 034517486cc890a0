#include "tests/simulation/plan.hpp"

#include "tests/simulation/random.hpp"

namespace turnstile::simulation {

Plan plan_for(std::uint64_t seed) {
  Random random(seed ^ 0x706c616e);  // "plan": another stream of random numbers than that of the run
  Plan plan{.seed = seed, .faults = {}, .chaos = random.between(3, 8) * kSecond};
  const int kept = static_cast<int>(random.between(15, 85));
  for (std::size_t fault = 0; fault < kFaults; ++fault) plan.faults[fault] = random.chance(kept);
  return plan;
}

std::string command_for(const Plan& plan) {
  const Plan whole = plan_for(plan.seed);
  std::string command = "./dev simulate --seed " + std::to_string(plan.seed);
  for (std::size_t fault = 0; fault < kFaults; ++fault) {
    if (whole.faults[fault] && !plan.faults[fault]) command += " --without " + std::string(kFaultNames[fault]);
  }
  if (plan.chaos != whole.chaos) command += " --chaos-ms " + std::to_string(plan.chaos / kMillisecond);
  return command;
}

}  // namespace turnstile::simulation
