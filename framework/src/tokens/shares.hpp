#pragma once
// Who should hold how many of a limiter's permits. Integers only, and the answer depends on nothing but the arguments: every
// member computes it for itself.

#include <span>

#include "tokens/event.hpp"

namespace turnstile::tokens {

struct Wish {
  Count wants = 0;
  Count urgent = 0;  ///< of wants
  Count least = 1;   ///< fewer help it nothing
  Count weight = 1;  ///< 1 to 1,000
  Count share = 0;   ///< the answer
};

/// Divides `capacity`. `wishes` in the order of arrival. Returns whether somebody who wants got less than it can use.
///
/// 1. Seats: each in order gets the least that it can use, those with urgent wishes first. Who does not fit is passed over; since
///    who had a turn goes to the end of the line, it comes first in time.
/// 2. What is left raises all seated alike, in proportion to their weights (max-min fairness): urgent wishes, then all.
///    What cannot be divided goes to the first in order.
bool divide(Count capacity, std::span<Wish> wishes);

}  // namespace turnstile::tokens
