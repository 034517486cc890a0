#pragma once
// What a member and the permit pools of its process tell each other: the demand, and the orders.

#include <cstdint>
#include <string>

#include "tokens/line.hpp"

namespace turnstile::tokens {

/// Microseconds of the member's own steady clock.
using Micros = std::int64_t;

/// A process's demand for a limiter now.
struct Demand {
  Count wants = 0;  ///< in use, and waited for
  Count urgent = 0;
  Count least = 1;  ///< fewer are of no use: to the first request that waits or, without one, to each that runs
  Count busy = 0;   ///< in use, including permits that were lost since

  bool operator==(const Demand&) const = default;
};

/// An order to the pool of a limiter. Totals count from the start of the life.
struct Order {
  enum class Kind : std::uint8_t {
    open,       ///< `total` permits have been granted
    surrender,  ///< return permits until `total` are returned: idle ones at once, others when they are released
    forfeit,    ///< all permits are lost; both totals (granted and returned) start again at `total`
  };
  Kind kind;
  std::string limiter;
  Count total;

  bool operator==(const Order&) const = default;
};

}  // namespace turnstile::tokens
