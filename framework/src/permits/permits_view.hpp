#pragma once
// Shows a state to people.

#include "tokens/state.hpp"
#include "turnstile/tokens.hpp"

namespace turnstile::detail {

PermitsView view_of(const tokens::State& state);

}  // namespace turnstile::detail
