#pragma once
// What people are shown of a state.

#include "tokens/state.hpp"
#include "turnstile/tokens.hpp"

namespace turnstile {

PermitsView view_of(const tokens::State& state);

}  // namespace turnstile
