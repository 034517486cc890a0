#pragma once
// The inbox in PostgreSQL (13 and later). Connections are opened when they are first needed, so a store can be created
// while the database is unavailable. It reports an outage as StoreUnavailable, and recovers by itself.

#include <memory>
#include <string>
#include <vector>

#include "turnstile/config.hpp"
#include "turnstile/ports/store.hpp"

/// PostgreSQL: the inbox, limits, guards, migrations, and operators' queries.
namespace turnstile::postgres {

/// Opens no connection yet. Sessions share at most `settings.connections` connections, one transaction each. The
/// store's own calls use up to four more, so that a claim never waits for a handler to end. Throws ConfigError if it
/// cannot parse the URL, or if the schema is not a plain name. It never shows the password.
std::shared_ptr<ports::Store> open_store(const PostgresSettings& settings);

/// A finding of lint_server().
struct Finding {
  std::string problem;  ///< "fsync is off: …"
  std::string remedy;   ///< "ALTER SYSTEM SET fsync = on; …"
};

/// Checks the server's settings for values that break the guarantees of the inbox (hazard: volatile-server-settings).
/// Empty: there are none. Throws StoreUnavailable.
std::vector<Finding> lint_server(const PostgresSettings& settings);

}  // namespace turnstile::postgres
