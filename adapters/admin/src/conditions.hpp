#pragma once
// What a process must fulfil to be healthy, and to be ready.

#include <string>
#include <vector>

#include "turnstile/status.hpp"

namespace turnstile::admin {

/// The conditions that fail, one sentence each. Empty: it is healthy. A process fails them only if a restart helps.
std::vector<std::string> why_not_healthy(const Status& status);

/// The conditions that fail, one sentence each. Empty: it is ready.
std::vector<std::string> why_not_ready(const Status& status);

}  // namespace turnstile::admin
