#pragma once
// Shows a state to people.

#include <vector>

#include "tokens/state.hpp"
#include "turnstile/tokens.hpp"

namespace turnstile::detail {

PermitsView view_of(const tokens::State& state);
/// Of the parts of a log, part 0 first. A limiter that moves out of part 0 can be in two of them.
PermitsView merged(std::vector<PermitsView> parts);

}  // namespace turnstile::detail
