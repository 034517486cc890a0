#pragma once
// Events as people read them.

#include <string>

#include "tokens/event.hpp"

namespace turnstile::simulation {

std::string describe(const tokens::Event& event);

}  // namespace turnstile::simulation
