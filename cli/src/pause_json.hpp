#pragma once
// A pause as JSON.

#include "text.hpp"
#include "turnstile/ports/pauses.hpp"

namespace turnstile::cli {

Json to_json(const ports::Pause& pause);

}  // namespace turnstile::cli
