#pragma once
// The texts of messages that become dead letters without a failure of their handler: why, and what to do.

#include "delivery/unit.hpp"

namespace turnstile {

[[nodiscard]] DeadLetter reason_killed(const Unit& unit, const UnitItem& item);
[[nodiscard]] DeadLetter reason_too_old(const Unit& unit, const UnitItem& item);
[[nodiscard]] DeadLetter reason_no_session(const Unit& unit, const UnitItem& item);
[[nodiscard]] DeadLetter reason_forged(const Unit& unit, const UnitItem& item);
[[nodiscard]] DeadLetter reason_outside_window(const Unit& unit, const UnitItem& item);
[[nodiscard]] DeadLetter reason_mismatch();

}  // namespace turnstile
