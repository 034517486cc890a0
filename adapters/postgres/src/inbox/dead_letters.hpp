#pragma once

#include <memory>

#include "inbox/session.hpp"
#include "turnstile/ports/dead_letters.hpp"

namespace turnstile::postgres {

std::shared_ptr<ports::DeadLetterStore> open_dead_letters(std::shared_ptr<Shared> shared);

}  // namespace turnstile::postgres
