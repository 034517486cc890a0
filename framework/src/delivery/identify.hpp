#pragma once
// Which messages of a unit may run: ids are computed, once, from the raw records, and what can have none is dead-lettered.

#include "delivery/unit.hpp"
#include "delivery/verdicts.hpp"

namespace turnstile {

/// A dead letter that is published again for another handler: this handler has had it. It is settled.
bool pass_over_others(UnitItem& item, Unit& unit, Verdicts& verdicts);
/// Gives the items their ids, and returns those that are to run. The others have their verdicts.
Items identify(Unit& unit, Verdicts& verdicts);
/// Where producers number their requests: dead-letters what was not numbered by its producer. False: the store is unavailable, and the
/// unit has ended.
bool verify_producers(Unit& unit, Verdicts& verdicts, Items& items);

}  // namespace turnstile
