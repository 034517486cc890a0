#pragma once
// Whether an error of recording the end of claims will come again.

#include "turnstile/error.hpp"

namespace turnstile {

/// A right that is missing, or a statement that was cancelled, can be mended. Only data that PostgreSQL cannot hold, and constraints of the
/// tables, are refused again and again (SQLSTATE classes 22, 23).
inline bool is_permanent(const std::exception& error) {
  const auto refuses_data = [](const std::string& sqlstate) {
    return sqlstate.starts_with("22") || sqlstate.starts_with("23");
  };
  if (const auto* failed = dynamic_cast<const StoreFailed*>(&error)) return refuses_data(failed->sqlstate);
  if (const auto* refused = dynamic_cast<const SqlError*>(&error)) return refuses_data(refused->sqlstate);
  return dynamic_cast<const StoreUnavailable*>(&error) == nullptr && dynamic_cast<const StoreBusy*>(&error) == nullptr;
}

}  // namespace turnstile
