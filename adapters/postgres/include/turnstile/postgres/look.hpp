#pragma once
// The findings of `turnstile doctor` and Consumer::check() about PostgreSQL.

#include "turnstile/config.hpp"
#include "turnstile/findings.hpp"

namespace turnstile::postgres {

/// Checks the server and its settings, the schema, and the rights. Also what waits for an operator: old ids, dead
/// letters, claims, the outbox. Waits some seconds for each answer; throws nothing.
void look_at(const Config& config, Findings& findings);

}  // namespace turnstile::postgres
