#pragma once
// Runs items together. If they fail, it isolates the item that is to blame, and runs the others together again.

#include <functional>
#include <optional>
#include <vector>

#include "delivery/failure.hpp"
#include "delivery/verdicts.hpp"

namespace turnstile::detail {

/// Runs items together once. They are in ascending order and not empty. Absent: the run succeeded, or it has given the
/// items their verdicts itself.
using Attempt = std::function<std::optional<Failure>(const Items&)>;

/// Runs the items of each part together, one part after the other. Gives each item its verdict, or ends the unit.
/// `parts`: in ascending order; they may be empty.
void run_isolating(Unit& unit, Verdicts& verdicts, std::vector<Items> parts, const Attempt& attempt);

/// Three parts: the items before the culprit, the culprit, and the items after it. Two halves if the culprit is
/// unknown.
std::vector<Items> split(const Items& items, const UnitItem* culprit);

}  // namespace turnstile::detail
