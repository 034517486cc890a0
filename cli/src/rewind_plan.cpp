#include "rewind_plan.hpp"

#include <algorithm>

namespace turnstile::cli {

std::vector<Rewind> plan_rewind(const std::vector<GroupPosition>& positions) {
  std::vector<Rewind> plan;
  for (const auto& position : positions) {
    auto& rewind = plan.emplace_back(Rewind{position.partition, position.committed, std::nullopt});
    if (position.committed && position.at_time && *position.at_time < *position.committed) rewind.to = position.at_time;
  }
  return plan;
}

std::int64_t settled_records(const Rewind& rewind, Offset settled) {
  if (!rewind.to) return 0;
  return std::clamp(settled, *rewind.to, *rewind.committed) - *rewind.to;
}

}  // namespace turnstile::cli
