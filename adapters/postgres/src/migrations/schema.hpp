#pragma once
// Checks the ledger of migrations before a consumer starts.

#include "turnstile/config.hpp"
#include "wire/connection.hpp"

namespace turnstile::postgres {

/// Throws SchemaError if the schema is not exactly the one of this build. The connection must be idle.
void check_ledger(Connection& connection, const PostgresSettings& settings);

}  // namespace turnstile::postgres
