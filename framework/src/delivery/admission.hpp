#pragma once
// Decides which messages of a unit run: by their ids, by what the inbox says about these ids (Admission, in
// ports/inbox.hpp), by the age of the message, and by the processes that died while it ran. A message that must not run
// becomes a dead letter, or is settled.

#include <optional>

#include "delivery/failure.hpp"
#include "delivery/unit.hpp"
#include "delivery/verdicts.hpp"

namespace turnstile {

/// The message is a dead letter that is published again for another handler. This handler has had it, so it is settled.
bool pass_over_others(UnitItem& item, Unit& unit, Verdicts& verdicts);
/// Computes the ids of the items from the raw records. Mode numbered: verifies that the producers numbered the requests
/// themselves. Returns the items that may run. The others have their verdicts, or the unit has ended because the store
/// is unavailable.
Items admit(Unit& unit, Verdicts& verdicts);

/// Whether the message ran alone in its process as often as it may, and the process died each time.
[[nodiscard]] bool is_killer(const Unit& unit, const UnitItem& item);
/// The first of these messages that may have taken effect although its id is no longer stored. Null: none. Call it when
/// their ids are in the inbox or claimed: the purger moves the horizon before it deletes ids. Throws what the store
/// throws.
[[nodiscard]] UnitItem* first_too_old(const Unit& unit, const Items& items);
/// In a transaction: dead-letters the first message that must not run before a later message is committed, because that
/// commit could move the partition past it. `fresh`: those of `items` that the inbox admitted.
[[nodiscard]] std::optional<Failure> first_refused(const Unit& unit, const Items& items, const Items& fresh);

}  // namespace turnstile
