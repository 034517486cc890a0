#pragma once
// Decides how many of a limiter's permits each member should hold. It uses integers only, and the result depends only
// on the arguments: every member computes it itself.

#include <span>

#include "tokens/event.hpp"

namespace turnstile::tokens {

struct Wish {
  Count wants = 0;
  Count urgent = 0;  ///< of wants
  Count least = 1;   ///< fewer are of no use
  Count weight = 1;  ///< 1 to 1,000
  Count share = 0;   ///< the result
};

/// Divides `capacity`. `wishes` are in the order of arrival. Returns whether a wish got less than it can use.
///
/// 1. Seats: in order, each wish gets the smallest number that it can use; urgent wishes are first. A wish that does
///    not fit is skipped. A member that had a turn goes to the end of the line, so each wish is first at some time.
/// 2. The rest raises all seated wishes alike, in proportion to their weights (max-min fairness): first urgent wishes,
///    then all. A remainder that cannot be divided goes to the first in order.
bool divide(Count capacity, std::span<Wish> wishes);

}  // namespace turnstile::tokens
