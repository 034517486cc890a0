#pragma once
// The ledger of migrations, as a consumer looks at it before it starts.

#include "turnstile/config.hpp"
#include "wire/connection.hpp"

namespace turnstile::postgres {

/// Throws SchemaError when the schema is not exactly what this build was made for. The connection must be idle.
void check_ledger(Connection& connection, const PostgresSettings& settings);

}  // namespace turnstile::postgres
