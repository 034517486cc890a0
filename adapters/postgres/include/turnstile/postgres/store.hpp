#pragma once
// The inbox in PostgreSQL (13 and later). Connections are opened when they are first needed, so a store can be made
// while the database is away; what it cannot reach it reports as StoreUnavailable, and goes on by itself later.

#include <memory>
#include <string>
#include <vector>

#include "turnstile/config.hpp"
#include "turnstile/ports/inbox.hpp"

/// PostgreSQL: the inbox, limits, guards, migrations, and what an operator asks.
namespace turnstile::postgres {

/// Opens no connection yet. Sessions share at most `settings.connections` connections, a transaction each; the store's
/// own calls use up to four more, so that a claim never waits for a handler to end.
/// Throws ConfigError when the URL cannot be read or the schema is not a plain name; the password is never shown.
std::shared_ptr<InboxStore> open_store(const PostgresSettings& settings);

/// What lint_server() has found in the server's settings.
struct Finding {
  std::string problem;  ///< "fsync is off: …"
  std::string remedy;   ///< "ALTER SYSTEM SET fsync = on; …"
};

/// What in the server's settings breaks the promises of the inbox (hazard: volatile-server-settings). Empty: nothing. Throws StoreUnavailable.
std::vector<Finding> lint_server(const PostgresSettings& settings);

}  // namespace turnstile::postgres
