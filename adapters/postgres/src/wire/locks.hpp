#pragma once
// The sessions that block a statement after a lock timeout: the server's error names neither table nor session.

#include <cstdint>
#include <string>

#include "turnstile/config.hpp"

namespace turnstile::postgres {

/// How the statement wanted to use the tables.
enum class Wanted : std::uint8_t {
  rows,    ///< to read or write them
  tables,  ///< to change their definition, which excludes all other users
};

/// ": turnstile.inbox is locked by pid 4711 (psql as app, idle in transaction for 90 s)". If that is unknown, it names
/// the query to run. It uses its own connection, for up to some seconds, and throws no error of the server.
std::string lock_holders(const PostgresSettings& settings, Wanted wanted);

}  // namespace turnstile::postgres
