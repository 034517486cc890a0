#pragma once
// Runs items together. When they fail, it isolates the item that is to blame, and runs the others together again.

#include <functional>
#include <optional>

#include "delivery/failure.hpp"
#include "delivery/verdicts.hpp"

namespace turnstile {

/// One try of items that are ascending and not empty. Nothing: it went well, or the try has given them their verdicts itself.
using Attempt = std::function<std::optional<Failure>(const Items&)>;

/// Gives each item its verdict, or ends the unit.
void run_isolating(Unit& unit, Verdicts& verdicts, Items items, const Attempt& attempt);

/// Before the culprit, the culprit alone, after it; two halves where the culprit is not known.
std::vector<Items> split(const Items& items, const UnitItem* culprit);

}  // namespace turnstile
