#pragma once
// Why the end of claims could not be written down: for now, or for good.

#include <optional>
#include <string>

#include "turnstile/error.hpp"

namespace turnstile {

struct EndTrouble {
  std::string why;
  bool for_good = false;  ///< saying the same again is of no use
};

/// Nothing when `say` went through. A right that is missing, or a statement that was cancelled, can be mended: only data that PostgreSQL
/// cannot hold, and constraints of the tables, are refused again and again (SQLSTATE classes 22, 23).
template <class Say>
std::optional<EndTrouble> trouble_with(Say&& say) {
  try {
    say();
    return std::nullopt;
  } catch (const StoreFailed& e) {
    return EndTrouble{e.what(), e.sqlstate.starts_with("22") || e.sqlstate.starts_with("23")};
  } catch (const StoreUnavailable& e) {
    return EndTrouble{e.what()};
  } catch (const StoreBusy& e) {
    return EndTrouble{e.what()};
  } catch (const SqlError& e) {
    return EndTrouble{e.what(), e.sqlstate.starts_with("22") || e.sqlstate.starts_with("23")};
  } catch (const std::exception& e) {
    return EndTrouble{e.what(), true};
  }
}

}  // namespace turnstile
