#include "tokens/reclaim.hpp"

#include "tokens/conditions.hpp"

namespace turnstile::tokens {

bool Reclaim::displace(MemberId owner, const PartitionsClaimed::Claim& claim) {
  const auto old = state_.members.find(owner);
  if (old == state_.members.end()) return false;
  old->second.owns.erase(claim.partition);
  if (claim.fence == 0) old->second.unfenced.insert(claim.partition);
  return true;
}

void Reclaim::fence(const Partition& partition) {
  for (auto& [id, member] : state_.members) {
    if (member.unfenced.erase(partition) > 0 && member.unfenced.empty() && member.draining) reclaim(id);
  }
}

void Reclaim::drain_if_it_owns_nothing(MemberId id) {
  MemberEntry& member = state_.members.at(id);
  if (!member.owns.empty() || member.draining) return;
  set_draining(id, member, true);
  effects_.drained.push_back(id);
  if (!waits_for_a_fence(member)) reclaim(id);
}

void Reclaim::set_draining(MemberId id, MemberEntry& member, bool draining) {
  member.draining = draining;
  for (auto& [name, limiter] : state_.limiters) {
    const auto holding = limiter.holdings.find(id);
    if (holding == limiter.holdings.end() || holding->second.outlives_fence) continue;
    holding->second.draining = draining;
    grants_.settle(limiter);
  }
}

/// The member's permits return, except those of strict limiters, and those of limiters with calls that the fence does
/// not reject.
void Reclaim::reclaim(MemberId id) {
  for (auto& [name, limiter] : state_.limiters) {
    const auto holding = limiter.holdings.find(id);
    if (holding == limiter.holdings.end()) continue;
    if (is_strict(limiter) || runs_despite_fences(holding->second)) continue;
    holding->second.given_back = holding->second.granted;
    grants_.settle(limiter);
  }
  effects_.reclaimed.push_back(id);
}

Effects::Outcome Reclaim::expire(const Expire& expire) {
  using Outcome = Effects::Outcome;
  const auto silent = state_.members.find(expire.member);
  if (expire.reserve) {
    if (silent != state_.members.end() || !state_.reserves.contains(expire.member)) return Outcome::stale;
    reserves_.drop(expire.member);
    return Outcome::applied;
  }
  // A member that proposes its own expiry has just written an event, so its proposal is stale.
  if (silent == state_.members.end()) return Outcome::stale;
  if (has_written_since(silent->second, expire.silent_since)) return Outcome::stale;
  end(expire.member);
  return Outcome::applied;
}

void Reclaim::end(MemberId id) {
  state_.members.erase(id);
  for (auto entry = state_.limiters.begin(); entry != state_.limiters.end();) {
    LimiterEntry& limiter = entry->second;
    if (limiter.holdings.erase(id) > 0) grants_.settle(limiter);
    entry = limiter.is_unused() ? state_.limiters.erase(entry) : std::next(entry);
  }
  if (reserve_ends_too()) reserves_.drop(id);
  state_.ended[at_] = id;
  state_.ended_ids.insert(id);
  if (state_.ended.size() > kRememberedLives) {
    state_.ended_ids.erase(state_.ended.begin()->second);
    state_.ended.erase(state_.ended.begin());
  }
  effects_.ended = id;
}

}  // namespace turnstile::tokens
