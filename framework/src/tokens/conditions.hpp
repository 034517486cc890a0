#pragma once
// The conditions of the rules of apply(), by name. A planted bug overrides one of them.

#include <algorithm>
#include <variant>

#include "tokens/planted.hpp"
#include "tokens/state.hpp"

namespace turnstile::tokens {

inline bool has_ended(const State& state, MemberId id) {
  return state.ended_ids.contains(id) && !TURNSTILE_PLANTED(late_joined_revives);
}

inline bool has_written_since(const MemberEntry& member, Position position) {
  return member.last > position && !TURNSTILE_PLANTED(expire_despite_later_writing);
}

/// The operator had not read the last change of a limit.
inline bool is_unseen(const State& state, const LimitSet& change) {
  return change.seen < state.limits_set_at && !TURNSTILE_PLANTED(limit_set_unseen);
}

inline bool is_of_an_old_epoch(const Event& event, const MemberEntry& member) {
  if (TURNSTILE_PLANTED(late_release_of_an_old_epoch) && std::holds_alternative<Release>(event.body)) return false;
  return event.epoch < member.epoch;
}

inline bool is_duplicate(const Event& event, const MemberEntry& member) {
  return event.seq <= member.seq && !TURNSTILE_PLANTED(duplicates_applied);
}

inline bool ends_turn(const Line& line) { return line.turn_over && !TURNSTILE_PLANTED(turns_not_taken); }

/// The correct rule refuses no line for the permits of other members.
inline bool is_refused_by_planted_bug(const LimiterEntry& limiter, const Holding& holding) {
  return TURNSTILE_PLANTED(rejected_below_the_newest_holder) &&
         std::any_of(limiter.holdings.begin(), limiter.holdings.end(),
                     [&](const auto& other) { return other.second.held_since > holding.held_since; });
}

inline Count total_given_back(const Line& line, const Holding& holding) {
  return TURNSTILE_PLANTED(release_frees_twice) ? holding.given_back + line.given_back : line.given_back;
}

/// With a fence the database decides the order; equal fences are two lives of a process. Without a fence the log
/// decides.
inline bool follows(const State& state, const PartitionsClaimed::Claim& claim, const PartitionEntry& before) {
  if (TURNSTILE_PLANTED(stale_claim_accepted)) return true;
  if (claim.fence == 0) return claim.previous == before.claimed_at;
  return claim.fence > before.fence || (claim.fence == before.fence && !state.members.contains(before.owner));
}

/// No database rejects what the member still does in some partition.
inline bool waits_for_a_fence(const MemberEntry& member) {
  return !member.unfenced.empty() && !TURNSTILE_PLANTED(unfenced_reclaimed_at_once);
}

inline bool is_strict(const LimiterEntry& limiter) {
  return limiter.strict() && !TURNSTILE_PLANTED(fence_reclaims_strict);
}

inline bool runs_despite_fences(const Holding& holding) {
  return holding.outlives_fence && !TURNSTILE_PLANTED(fence_reclaims_services);
}

inline bool is_misplaced(const State& state, const Opened& opened) {
  return opened.part != state.part && !TURNSTILE_PLANTED(opened_in_any_part);
}

inline bool is_misplaced(const State& state, const Joined& joined) {
  return joined.part != state.part && !TURNSTILE_PLANTED(joined_in_any_part);
}

inline bool is_closed(const LimiterEntry& limiter) { return limiter.closed && !TURNSTILE_PLANTED(closed_grants); }

/// Nothing of it would return to others.
inline bool is_at_rest(const Holding& holding) {
  return holding.wants == 0 && (holding.held() == 0 || TURNSTILE_PLANTED(rests_with_permits));
}

/// The correct rule keeps a member's reserve when its lease ends.
inline bool reserve_ends_too() { return TURNSTILE_PLANTED(reserve_ends_with_the_lease); }

}  // namespace turnstile::tokens
