#pragma once
// Whether recording the end of claims will fail again with the same error.

#include "turnstile/error.hpp"

namespace turnstile::detail {

/// An operator can fix a missing right or a cancelled statement. PostgreSQL always refuses data that it cannot hold,
/// and data that violates a constraint (SQLSTATE classes 22 and 23). Other exceptions are permanent too, except
/// StoreUnavailable and StoreBusy.
inline bool is_permanent(const std::exception& error) {
  const auto refuses_data = [](const std::string& sqlstate) {
    return sqlstate.starts_with("22") || sqlstate.starts_with("23");
  };
  if (const auto* failed = dynamic_cast<const StoreFailed*>(&error)) return refuses_data(failed->sqlstate);
  if (const auto* refused = dynamic_cast<const SqlError*>(&error)) return refuses_data(refused->sqlstate);
  return dynamic_cast<const StoreUnavailable*>(&error) == nullptr && dynamic_cast<const StoreBusy*>(&error) == nullptr;
}

}  // namespace turnstile::detail
