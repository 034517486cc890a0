#pragma once
// Describes events for people.

#include <string>

#include "tokens/event.hpp"

namespace turnstile::simulation {

std::string describe(const tokens::Event& event);

}  // namespace turnstile::simulation
