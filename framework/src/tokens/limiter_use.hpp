#pragma once
// A member's account of one limiter.

#include <cstdint>
#include <optional>
#include <string>

#include "tokens/order.hpp"
#include "tokens/state.hpp"

namespace turnstile::tokens {

/// A limiter that the process uses: its configuration, its demand, and the account of its permits.
struct LimiterUse {
  Count limit = 0;
  bool strict = false;
  bool outlives_fence = false;
  Count set_aside = 0;
  Count reserve = 0;
  Demand demand;
  Count peak = 0;  ///< the highest demand.wants since the last report
  Count granted = 0;
  Count given_back = 0;
  Count surrender_to = 0;            ///< as ordered
  std::optional<Micros> turn_since;  ///< since when it has held enough to use
  std::optional<Micros> idle_since;  ///< since when it has held more than it wants
  std::optional<Micros> fell_since;  ///< since when it has wanted less than it reported
  bool known = false;                ///< the state has a holding of this member
  bool refused = false;              ///< it was reported, and the state has no such holding
  bool closing = false;              ///< no longer declared
  /// Reported as gone, and not read back yet: nothing is opened, and nothing else is reported.
  bool letting_go = false;
  std::uint32_t gone_in = 0;  ///< the epoch in which it was reported as gone
  bool turn_over = false;     ///< to be reported with the next line
  Line said;

  [[nodiscard]] Count held() const { return granted - given_back; }
  /// The account starts again with nothing.
  void reset();
  /// A report to the domain, with this number of wishes.
  Line report(const std::string& name, Count now_wants);

  // The conditions of the member's rules. A planted bug overrides some of them.
  /// It was reported as gone: nothing is opened until the report is read back.
  [[nodiscard]] bool is_going() const;
  /// A fence has returned permits.
  [[nodiscard]] bool was_fenced(const Holding& holding) const;
  [[nodiscard]] bool has_enough() const;
  [[nodiscard]] bool is_without_turn() const;
  /// It needs less than it has requested.
  [[nodiscard]] bool has_fallen() const;
  /// It needs more than it has requested, or the end of its turn is not reported yet.
  [[nodiscard]] bool needs_more(Count domain_limit) const;
};

}  // namespace turnstile::tokens
