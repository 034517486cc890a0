#pragma once
// The dead letters of messages that must not run although their handler reported no failure. Each text gives the reason
// and the remedy.

#include "delivery/unit.hpp"

namespace turnstile::detail {

[[nodiscard]] DeadLetter reason_killed(const Unit& unit, const UnitItem& item);
[[nodiscard]] DeadLetter reason_too_old(const Unit& unit, const UnitItem& item);
[[nodiscard]] DeadLetter reason_no_session(const Unit& unit, const UnitItem& item);
[[nodiscard]] DeadLetter reason_forged(const Unit& unit, const UnitItem& item);
[[nodiscard]] DeadLetter reason_outside_window(const Unit& unit, const UnitItem& item);
[[nodiscard]] DeadLetter reason_mismatch();
[[nodiscard]] DeadLetter reason_unreadable();

}  // namespace turnstile::detail
