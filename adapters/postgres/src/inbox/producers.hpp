#pragma once

#include <memory>

#include "inbox/session.hpp"
#include "turnstile/ports/producers.hpp"

namespace turnstile::postgres {

std::shared_ptr<ports::Producers> open_producers(std::shared_ptr<Shared> shared);

}  // namespace turnstile::postgres
