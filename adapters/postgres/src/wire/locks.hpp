#pragma once
// Who is in the way of a statement that has waited for a lock in vain: the server's error names neither table nor session.

#include <cstdint>
#include <string>

#include "turnstile/config.hpp"

namespace turnstile::postgres {

/// What the statement wanted of the tables.
enum class Wanted : std::uint8_t {
  rows,    ///< to read or write them
  tables,  ///< to change what they are, for which nobody else may use them
};

/// ": turnstile.inbox is locked by pid 4711 (psql as app, idle in transaction for 90 s)", or which query to run where that is not known.
/// Asks on a connection of its own, for some seconds at most. Throws nothing for what the server says.
std::string lock_holders(const PostgresSettings& settings, Wanted wanted);

}  // namespace turnstile::postgres
