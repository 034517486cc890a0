#pragma once

#include <memory>

#include "inbox/session.hpp"
#include "turnstile/ports/pauses.hpp"

namespace turnstile::postgres {

std::shared_ptr<ports::Pauses> open_pauses(std::shared_ptr<Shared> shared);

}  // namespace turnstile::postgres
