#pragma once
// Why a message becomes a dead letter without having failed, in words that say what to do.

#include "delivery/unit.hpp"

namespace turnstile {

/// It ran alone in its process as often as it may, and each time the process died.
[[nodiscard]] bool is_killer(const Unit& unit, const UnitItem& item);
/// The first of these that may have taken effect and been forgotten; null: none. To be asked once their ids are in the inbox, or
/// claimed: purging moves the horizon before it deletes ids. Throws as the store does.
[[nodiscard]] UnitItem* first_too_old(const Unit& unit, const Items& items);

[[nodiscard]] DeadLetter reason_killed(const Unit& unit, const UnitItem& item);
[[nodiscard]] DeadLetter reason_too_old(const Unit& unit, const UnitItem& item);
[[nodiscard]] DeadLetter reason_no_session(const Unit& unit, const UnitItem& item);
[[nodiscard]] DeadLetter reason_forged(const Unit& unit, const UnitItem& item);
[[nodiscard]] DeadLetter reason_outside_window(const Unit& unit, const UnitItem& item);
[[nodiscard]] DeadLetter reason_mismatch();

}  // namespace turnstile
