#include "tokens/lease_ends.hpp"

#include <algorithm>

#include "tokens/apply.hpp"

namespace turnstile::tokens {

namespace {

/// Older members propose the expiry of a silent member earlier. The step between two members, and the longest delay, as
/// parts of the lease.
constexpr Micros kRankSteps = 64;
constexpr Micros kRankMost = 8;

}  // namespace

std::vector<Expire> LeaseEnds::propose(const State& state, MemberId self, Micros now) {
  std::vector<Expire> proposals;
  while (!due_order_.empty() && due_order_.begin()->first <= now) {
    const MemberId id = due_order_.begin()->second;
    const auto silent = state.members.find(id);
    const bool reserves = silent == state.members.end() && state.reserves.contains(id);
    if (silent == state.members.end() && !reserves) {
      forget(id);
      continue;
    }
    const Due due = due_.at(id);
    if (knows_rest_ && !due.rested && !reserves && rests(state, id)) {
      const Micros lease = Micros{silent->second.about.lease_ms} * 1'000;
      expect(id, {.at = due.at + lease * (kRestLeases - 1), .rested = true});
      continue;
    }
    if (!due.ranked) {
      const Position own = state.members.at(self).joined_at;
      const auto older = std::count_if(state.members.begin(), state.members.end(),
                                       [&](const auto& m) { return m.first != id && m.second.joined_at < own; });
      expect(id, {.at = due.at + std::min(older * (lease_ / kRankSteps), lease_ / kRankMost),
                  .ranked = true,
                  .rested = due.rested});
      continue;
    }
    proposals.push_back(reserves ? Expire{id, kNowhere, true} : Expire{id, silent->second.last});
    expect(id, {.at = now + lease_ / kRankMost, .ranked = true, .rested = true});
  }
  return proposals;
}

std::optional<Micros> LeaseEnds::next() const {
  if (due_order_.empty()) return std::nullopt;
  return due_order_.begin()->first;
}

void LeaseEnds::expect(MemberId id, Due due) {
  forget(id);
  due_[id] = due;
  due_order_.insert({due.at, id});
}

void LeaseEnds::forget(MemberId id) {
  const auto known = due_.find(id);
  if (known == due_.end()) return;
  due_order_.erase({known->second.at, id});
  due_.erase(known);
}

void LeaseEnds::clear() {
  due_.clear();
  due_order_.clear();
}

}  // namespace turnstile::tokens
