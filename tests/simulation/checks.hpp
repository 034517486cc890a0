#pragma once
// The judge. It applies each record as soon as it is written, before any process has read it. After each record it
// checks the invariants of the token log (docs/internals/invariants.md). The world tells it what processes do outside
// the log.

#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "tests/simulation/marks.hpp"
#include "tokens/apply.hpp"

namespace turnstile::simulation {

/// An invariant is broken.
struct Broken : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class Checks {
 public:
  explicit Checks(Marks& marks) : marks_(marks) {}

  /// Throws Broken.
  const tokens::Effects& written(tokens::Position position, const tokens::Event& event);
  /// A process that has read up to `position` has reached this state.
  void reached(tokens::Position position, const tokens::State& state) const;

  [[nodiscard]] const tokens::State& state() const { return state_; }
  /// Positions at which processes compare their states with the judge's.
  static bool is_compared(tokens::Position position) { return position % 8 == 0; }

 private:
  void capacity_holds(const std::map<std::string, tokens::Count>& held_before) const;
  void reserve_fits(const std::map<std::string, tokens::Count>& taken_before) const;
  void snapshot_is_the_state() const;
  void duplicate_changed_nothing(const tokens::State& before, const tokens::Event& event) const;
  void limit_change_was_due(const tokens::Event& event, tokens::Position set_before) const;
  void void_claims_changed_nothing(const tokens::State& before, const tokens::Event& event) const;
  void ended_stay_ended(const tokens::Effects& effects);
  void count_marks(const tokens::Event& event);

  Marks& marks_;
  tokens::State state_;
  tokens::Effects effects_;
  std::set<std::tuple<tokens::MemberId, std::uint32_t, std::uint64_t>> counted_;  ///< events that were applied
  std::set<tokens::MemberId> ended_;
  std::vector<std::uint64_t> digests_;  ///< at each position that is compared
};

}  // namespace turnstile::simulation
