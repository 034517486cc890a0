#pragma once

#include <memory>

#include "session.hpp"
#include "turnstile/ports/outbox.hpp"

namespace turnstile::postgres {

std::shared_ptr<Outbox> open_outbox(std::shared_ptr<Shared> shared);

}  // namespace turnstile::postgres
