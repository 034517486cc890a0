#pragma once

#include <memory>

#include "inbox/session.hpp"
#include "turnstile/ports/claims.hpp"

namespace turnstile::postgres {

std::shared_ptr<ports::Claims> open_claims(std::shared_ptr<Shared> shared);

}  // namespace turnstile::postgres
