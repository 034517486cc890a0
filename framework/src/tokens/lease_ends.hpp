#pragma once
// When the other members of a domain have been silent for their leases. The oldest member that notices it proposes
// their expiry first.

#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "tokens/order.hpp"
#include "tokens/state.hpp"

namespace turnstile::tokens {

class Silences {
 public:
  /// `lease`: this member's own.
  explicit Silences(Micros lease) : lease_(lease) {}

  /// The silence of the member is too long at this time, unless this is called again.
  void expect(MemberId id, Micros at) { expect(id, Due{.at = at}); }
  void forget(MemberId id);
  void clear();
  /// The expiries that `self` proposes now.
  std::vector<Expire> propose(const State& state, MemberId self, Micros now);
  /// When to call propose() again. Absent: there is no other member.
  [[nodiscard]] std::optional<Micros> next() const;

 private:
  struct Due {
    Micros at = 0;        ///< when its silence has lasted a lease, or when to propose its expiry (again)
    bool ranked = false;  ///< the older members had their chance to propose it
  };

  void expect(MemberId id, Due due);

  const Micros lease_;
  std::map<MemberId, Due> due_;                      ///< for each other member
  std::set<std::pair<Micros, MemberId>> due_order_;  ///< the same, soonest first
};

}  // namespace turnstile::tokens
