#pragma once
// What `turnstile doctor` and Consumer::check() see of PostgreSQL.

#include "turnstile/config.hpp"
#include "turnstile/findings.hpp"

namespace turnstile::postgres {

/// The server with its settings, the schema, the rights; and what waits there for somebody: old ids, dead letters, claims, the outbox.
/// Waits some seconds for each answer; throws nothing.
void look_at(const Config& config, Findings& findings);

}  // namespace turnstile::postgres
