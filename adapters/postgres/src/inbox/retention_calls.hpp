#pragma once
// Calls the functions that keep and delete ids. They decide when an id is forgotten: migrations/0004_retention.up.sql.

#include <memory>

#include "inbox/session.hpp"
#include "turnstile/ports/retention.hpp"

namespace turnstile::postgres {

std::shared_ptr<ports::Retention> open_retention(std::shared_ptr<Shared> shared);

}  // namespace turnstile::postgres
