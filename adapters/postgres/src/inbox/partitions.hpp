#pragma once

#include <memory>

#include "inbox/session.hpp"
#include "turnstile/ports/partitions.hpp"

namespace turnstile::postgres {

std::shared_ptr<ports::Partitions> open_partitions(std::shared_ptr<Shared> shared);

}  // namespace turnstile::postgres
