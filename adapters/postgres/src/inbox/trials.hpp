#pragma once

#include <memory>

#include "inbox/session.hpp"
#include "turnstile/ports/trials.hpp"

namespace turnstile::postgres {

std::shared_ptr<ports::Trials> open_trials(std::shared_ptr<Shared> shared);

}  // namespace turnstile::postgres
