#pragma once
// Decides which messages of a unit run. The decision uses the message's id, the inbox's Admission of this id
// (ports/inbox.hpp), the message's age, and the processes that died while it ran. A message that must not run becomes a
// dead letter, or is settled.

#include <optional>

#include "delivery/failure.hpp"
#include "delivery/unit.hpp"
#include "delivery/verdicts.hpp"

namespace turnstile::detail {

/// True: the message was published again for another handler. It is then settled, because this handler has had it
/// before. Otherwise it sets UnitItem::back.
bool pass_over_others(UnitItem& item, Unit& unit, Verdicts& verdicts);
/// Computes the ids of the items from the raw records. Mode numbered: verifies that the producers numbered the messages
/// themselves. Returns the items that may run. The other items have their verdicts, or the unit has ended because the
/// store is unavailable.
Items admit(Unit& unit, Verdicts& verdicts);

/// Those of the items that the inbox admitted. The others are duplicates, or must not run.
[[nodiscard]] Items fresh_of(const Items& items);
/// Whether the message ran alone as often as `retry` allows, and killed its process each time.
[[nodiscard]] bool is_killer(const Unit& unit, const UnitItem& item);
/// The first of these messages that may have taken effect although its id is no longer stored. Null: there is none.
/// Call it only when their ids are in the inbox or claimed, because the purger moves the horizon before it deletes ids.
/// Throws what the store throws.
[[nodiscard]] UnitItem* first_too_old(const Unit& unit, const Items& items);
/// For a transaction: the failure of a message that must not run, with its dead letter. The message must be
/// dead-lettered before a later message is committed, because that commit could move the partition past it. `fresh`:
/// those of `items` that the inbox admitted. Returns a failure of the store, too.
[[nodiscard]] std::optional<Failure> first_refused(const Unit& unit, const Items& items, const Items& fresh);

}  // namespace turnstile::detail
