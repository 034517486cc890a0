#pragma once
// When the leases of the other members of a domain end: a lease after their last event was read. The oldest member that
// notices it proposes their expiry first.

#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "tokens/order.hpp"
#include "tokens/state.hpp"

namespace turnstile::tokens {

class LeaseEnds {
 public:
  /// `lease`: this member's own. `knows_rest`: see Joined.
  LeaseEnds(Micros lease, bool knows_rest) : lease_(lease), knows_rest_(knows_rest) {}

  /// An event of this member was read now. Its lease ends if none is read for this time.
  void heard_from(MemberId id, std::uint32_t lease_ms, Micros now) {
    expect(id, Due{.at = now + Micros{lease_ms} * 1'000});
  }
  void forget(MemberId id);
  void clear();
  /// The expiries that `self` proposes now.
  std::vector<Expire> propose(const State& state, MemberId self, Micros now);
  /// When to call propose() again. Absent: there is no other member.
  [[nodiscard]] std::optional<Micros> next() const;

 private:
  struct Due {
    Micros at = 0;        ///< when its lease ends, or when to propose its expiry (again)
    bool ranked = false;  ///< the older members had their chance to propose it
    bool rested = false;  ///< its longer lease was taken into account, if it rests
  };

  void expect(MemberId id, Due due);

  const Micros lease_;
  const bool knows_rest_;
  std::map<MemberId, Due> due_;                      ///< for each other member
  std::set<std::pair<Micros, MemberId>> due_order_;  ///< the same, soonest first
};

}  // namespace turnstile::tokens
