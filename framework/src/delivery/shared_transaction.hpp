#pragma once
// Several units of a topic in one transaction: few messages are ready in each of several partitions, and a commit costs
// more than their handlers.

#include <span>

#include "delivery/unit.hpp"

namespace turnstile::detail {

/// Runs units of mode transactional, each of another partition. If anything fails, the transaction is rolled back, and
/// each unit runs again by itself: so a failure belongs to its message, and a partition that was lost does not stop the
/// others. Each unit has its own verdicts and counts. The times of the common statements are in those of the first unit.
void run_shared(std::span<Unit* const> units);

}  // namespace turnstile::detail
