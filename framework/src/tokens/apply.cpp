#include "tokens/apply.hpp"

#include <algorithm>
#include <array>

#include "tokens/conditions.hpp"
#include "tokens/grants.hpp"
#include "tokens/parts.hpp"
#include "tokens/reclaim.hpp"
#include "tokens/reserves.hpp"

namespace turnstile::tokens {

namespace {

using Outcome = Effects::Outcome;

constexpr std::uint32_t kShortestLeaseMs = 10;
constexpr std::uint32_t kLongestLeaseMs = 24 * 3'600 * 1'000;
constexpr std::uint32_t kMostWeight = 1'000;
constexpr std::size_t kMostLives = 16;

/// Applies an event, and lives as long as that takes.
class Application {
 public:
  Application(State& state, Position at, const Event& event, Effects& effects)
      : state_(state), at_(at), event_(event), effects_(effects) {}

  Outcome operator()(const Unknown&) { return Outcome::unknown; }

  Outcome operator()(const Joined& joined) {
    if (event_.member == 0 || event_.epoch == 0 || event_.seq == 0) return Outcome::not_allowed;
    if (has_ended(state_, event_.member)) return Outcome::revived;
    if (is_of_another_part(joined)) return Outcome::elsewhere;
    if (joined.lease_ms < kShortestLeaseMs || joined.lease_ms > kLongestLeaseMs || joined.weight < 1 ||
        joined.weight > kMostWeight || joined.knows < state_.version || joined.host.size() > kLongestName ||
        joined.client.size() > kLongestName || joined.most_limiters > kMostLimiters || joined.was.size() > kMostLives)
      return Outcome::not_allowed;
    const auto known = state_.members.find(event_.member);
    if (known == state_.members.end()) {
      if (state_.members.size() >= kMostMembers) return Outcome::not_allowed;
      MemberEntry& member = state_.members[event_.member];
      member.joined_at = at_;
      begin_epoch(member, joined);
      for (const MemberId was : joined.was) reserves_.take_over(event_.member, was, joined.reserve_ms);
      return Outcome::applied;
    }
    if (event_.epoch < known->second.epoch) return Outcome::old_epoch;
    if (event_.epoch == known->second.epoch) return Outcome::duplicate;
    begin_epoch(known->second, joined);
    for (auto& [name, limiter] : state_.limiters) {
      const auto holding = limiter.holdings.find(event_.member);
      if (holding == limiter.holdings.end()) continue;
      holding->second.weight = joined.weight;
      grants_.settle(limiter);
    }
    return Outcome::applied;
  }

  Outcome operator()(const Keep& keep) {
    return as_member([&](MemberEntry& member) {
      Outcome outcome = Outcome::applied;
      for (const Line& line : keep.lines) {
        if (const Outcome of_line = take(member, line); of_line != Outcome::applied) outcome = of_line;
      }
      return outcome;
    });
  }
  Outcome operator()(const Acquire& acquire) {
    return as_member([&](MemberEntry& member) { return take(member, acquire.line); });
  }
  Outcome operator()(const Release& release) {
    return as_member([&](MemberEntry& member) { return take(member, release.line); });
  }

  Outcome operator()(const PartitionsClaimed& claimed) {
    return as_member([&](MemberEntry& member) {
      Outcome outcome = claimed.claims.empty() ? Outcome::applied : Outcome::stale;
      std::set<MemberId> displaced;
      for (const auto& claim : claimed.claims) {
        if (claim.partition.topic.size() > kLongestName || claim.partition.group.size() > kLongestName ||
            claim.partition.store.size() > kLongestName)
          continue;
        const auto known = state_.partitions.find(claim.partition);
        if (known == state_.partitions.end() && !make_room_for_a_partition()) continue;
        const PartitionEntry before = known == state_.partitions.end() ? PartitionEntry{} : known->second;
        if (!follows(state_, claim, before)) continue;
        if (before.owner != event_.member && reclaim_.displace(before.owner, claim)) displaced.insert(before.owner);
        state_.partitions[claim.partition] = {
            .owner = event_.member, .claimed_at = at_, .fence = std::max(claim.fence, before.fence)};
        member.owns.insert(claim.partition);
        member.unfenced.erase(claim.partition);
        if (claim.fence > 0) reclaim_.fence(claim.partition);
        outcome = Outcome::applied;
      }
      for (const MemberId id : displaced) reclaim_.drain_if_it_owns_nothing(id);
      return outcome;
    });
  }

  Outcome operator()(const PartitionsRevoked& revoked) {
    return as_member([&](MemberEntry& member) {
      for (const Partition& partition : revoked.partitions) {
        member.unfenced.erase(partition);
        if (member.owns.erase(partition) > 0) release(partition);
      }
      // The member writes, and nothing of its lost partitions runs any more: it was only slower than the new owners.
      if (member.draining && member.unfenced.empty()) reclaim_.set_draining(event_.member, member, false);
      return Outcome::applied;
    });
  }

  Outcome operator()(const Drained&) {
    return as_member([&](MemberEntry& member) {
      if (!member.draining) return Outcome::stale;
      member.unfenced.clear();
      // Its permits returned with its lines before this event. Permits that it holds now were granted after it wrote
      // this.
      reclaim_.set_draining(event_.member, member, false);
      return Outcome::applied;
    });
  }

  Outcome operator()(const Expire& expire) {
    return as_member([&](MemberEntry&) { return reclaim_.expire(expire); });
  }

  Outcome operator()(const Left&) {
    return as_member([&](MemberEntry&) {
      reclaim_.end(event_.member);
      reserves_.drop(event_.member);
      return Outcome::applied;
    });
  }

  Outcome operator()(const LimitSet& change) {
    if (change.limiter.empty() || change.limiter.size() > kLongestName || change.limit.value_or(0) > kMostPermits)
      return Outcome::not_allowed;
    if (is_unseen(state_, change)) return Outcome::stale;
    if (change.seen >= at_) return Outcome::stale;
    if (is_elsewhere(change.limiter)) return Outcome::elsewhere;
    if (state_.closed) return Outcome::stale;  // limits that were set in part 0 come first, with Opened
    if (!state_.limiters.contains(change.limiter)) {
      if (!change.limit) return Outcome::stale;
      if (state_.limiters.size() >= state_.most_limiters()) return Outcome::not_allowed;
    }
    state_.limits_set_at = at_;
    LimiterEntry& limiter = entry(change.limiter);
    limiter.set = change.limit;
    grants_.settle(limiter);
    if (limiter.is_unused()) state_.limiters.erase(change.limiter);
    state_.limit_history.add(at_, change);
    return Outcome::applied;
  }

  Outcome operator()(const VersionSet& set) {
    if (set.version <= state_.version) return Outcome::stale;
    const bool all_know = std::all_of(state_.members.begin(), state_.members.end(),
                                      [&](const auto& m) { return m.second.about.knows >= set.version; });
    if (!all_know || state_.members.empty()) return Outcome::not_allowed;
    state_.version = set.version;
    return Outcome::applied;
  }

  Outcome operator()(const Divided& divided) {
    if (state_.version < kDividedVersion) return Outcome::unknown;
    if (state_.parts > 1) return Outcome::elsewhere;
    const auto witness = state_.members.find(divided.witness);
    if (witness == state_.members.end() || witness->second.joined_at != divided.joined_at) return Outcome::stale;
    // A reserve may be in use by a process that cannot read this.
    if (divided.parts < 2 || divided.parts > kMostParts || !state_.reserves.empty()) return Outcome::not_allowed;
    state_.parts = divided.parts;
    state_.division = divided.division;
    close(true);
    return Outcome::applied;
  }

  Outcome operator()(const Opened& opened) {
    if (state_.version < kDividedVersion) return Outcome::unknown;
    if (state_.part == 0 || !state_.closed || opened.division != state_.division) return Outcome::stale;
    if (is_misplaced(state_, opened)) return Outcome::elsewhere;
    for (const auto& [name, limit] : opened.sets) {
      if (name.empty() || name.size() > kLongestName || limit > kMostPermits) return Outcome::not_allowed;
      if (is_elsewhere(name)) return Outcome::elsewhere;
    }
    for (const auto& [name, limit] : opened.sets) entry(name).set = limit;
    close(false);
    return Outcome::applied;
  }

 private:
  LimiterEntry& entry(const std::string& name) {
    LimiterEntry& limiter = state_.limiters[name];
    limiter.closed = state_.closed;
    return limiter;
  }

  /// Lines in the directory are taken, because their members may not have read yet that the log was divided.
  [[nodiscard]] bool is_elsewhere(const std::string& name) const {
    return state_.parts > 1 && part_of(name, state_.parts) != state_.part;
  }

  /// A new member of a directory that needs none, or of another part or another division.
  [[nodiscard]] bool is_of_another_part(const Joined& joined) const {
    if (is_misplaced(state_, joined)) return true;
    if (state_.part > 0) return joined.division != state_.division;
    return !state_.members.contains(event_.member) && is_left(state_);
  }

  void close(bool closed) {
    state_.closed = closed;
    for (auto& [name, limiter] : state_.limiters) {
      limiter.closed = closed;
      grants_.settle(limiter);
    }
  }

  void begin_epoch(MemberEntry& member, const Joined& joined) {
    member.about = joined;
    forget_what_is_applied(member.about);
    member.epoch = event_.epoch;
    member.seq = event_.seq;
    member.last = at_;
  }

  /// Runs `body` if the event is new and comes from a member.
  template <class Body>
  Outcome as_member(Body body) {
    const auto found = state_.members.find(event_.member);
    if (found == state_.members.end()) return Outcome::stranger;
    MemberEntry& member = found->second;
    if (is_of_an_old_epoch(event_, member)) return Outcome::old_epoch;
    if (event_.epoch > member.epoch) return Outcome::not_allowed;  // an epoch begins with Joined
    if (is_duplicate(event_, member)) return Outcome::duplicate;
    member.seq = event_.seq;
    member.last = at_;
    return body(member);
  }

  Outcome take(const MemberEntry& member, const Line& line) {
    if (line.limiter.empty() || line.limiter.size() > kLongestName || line.limit > kMostPermits ||
        line.wants > kMostPermits || line.least > kMostPermits || line.busy > kMostPermits ||
        line.set_aside > kMostPermits || line.reserve > kMostPermits)
      return Outcome::not_allowed;
    if (line.gone) return let_go(line.limiter);
    const auto found = state_.limiters.find(line.limiter);
    if (found == state_.limiters.end()) {
      if (state_.part > 0 && is_elsewhere(line.limiter)) return Outcome::elsewhere;
      if (state_.limiters.size() >= state_.most_limiters()) return Outcome::not_allowed;
    }
    LimiterEntry& limiter = entry(line.limiter);
    auto& holdings = limiter.holdings;
    const auto [at, is_new] = holdings.try_emplace(event_.member);
    Holding& holding = at->second;
    if (is_new) {
      holding.weight = member.about.weight;
      holding.draining = member.draining && !line.outlives_fence;
    }
    Holding before = holding;
    if (line.outlives_fence) {
      holding.outlives_fence = true;
      holding.draining = false;
    }
    if (is_new || holding.wants == 0 || ends_turn(line)) holding.in_line_since = at_;
    if (is_refused_by_planted_bug(limiter, holding)) return Outcome::not_allowed;
    holding.limit = line.limit;
    holding.set_aside = line.set_aside;
    holding.wants = line.wants;
    holding.urgent = std::min(line.urgent, line.wants);
    holding.least = std::max<Count>(line.least, 1);
    holding.given_back = std::min(std::max(holding.given_back, total_given_back(line, holding)), holding.granted);
    // A second settle() changes nothing, so a Keep without news can skip it. A member that wants nothing is not in the
    // line.
    if (holding.wants == 0) before.in_line_since = holding.in_line_since;
    if (is_new || holding != before) grants_.settle(limiter);
    holding.strict = line.strict;
    holding.busy = line.busy;
    reserves_.request(event_.member, line, limiter);
    return Outcome::applied;
  }

  /// The member no longer uses the limiter.
  Outcome let_go(const std::string& name) {
    const auto found = state_.limiters.find(name);
    if (found == state_.limiters.end() || found->second.holdings.erase(event_.member) == 0) return Outcome::stale;
    reserves_.set(event_.member, name, found->second, 0);
    if (found->second.is_unused()) state_.limiters.erase(found);
    else grants_.settle(found->second);
    return Outcome::applied;
  }

  /// Deletes the partition without an owner that was released first. The database, or the next claim, decides about it.
  /// False: all partitions have an owner.
  bool make_room_for_a_partition() {
    if (state_.partitions.size() < kMostPartitions) return true;
    auto oldest = state_.partitions.end();
    for (auto at = state_.partitions.begin(); at != state_.partitions.end(); ++at) {
      if (state_.members.contains(at->second.owner)) continue;
      if (oldest == state_.partitions.end() || at->second.claimed_at < oldest->second.claimed_at) oldest = at;
    }
    if (oldest == state_.partitions.end()) return false;
    state_.partitions.erase(oldest);
    return true;
  }

  void release(const Partition& partition) {
    PartitionEntry& entry = state_.partitions.at(partition);
    entry.owner = 0;
    entry.claimed_at = at_;
  }

  State& state_;
  const Position at_;
  const Event& event_;
  Effects& effects_;
  Grants grants_{at_};
  Reserves reserves_{state_, grants_};
  Reclaim reclaim_{state_, at_, grants_, reserves_, effects_};
};

}  // namespace

std::string_view to_text(Effects::Outcome outcome) {
  static constexpr std::array<std::string_view, 9> kTexts{"applied", "unknown", "duplicate",   "old epoch", "stranger",
                                                          "revived", "stale",   "not allowed", "elsewhere"};
  return kTexts.at(static_cast<std::size_t>(outcome));
}

Effects apply(State& state, Position position, const Event& event) {
  Effects effects;
  if (position <= state.last) {
    effects.outcome = Outcome::duplicate;
    return effects;
  }
  state.last = position;
  effects.outcome = std::visit(Application(state, position, event, effects), event.body);
  if (effects.outcome != Outcome::applied) ++state.ignored;
  if (effects.outcome == Outcome::unknown) ++state.unknown;
  return effects;
}

bool shows(const State& state, MemberId member, const Line& line) {
  const Holding* const holding = state.holding(line.limiter, member);
  if (holding == nullptr || line.gone || line.turn_over) return false;
  const bool outlives_fence = holding->outlives_fence && !holding->draining;
  return holding->limit == line.limit && holding->strict == line.strict && holding->set_aside == line.set_aside &&
         holding->wants == line.wants && holding->urgent == std::min(line.urgent, line.wants) &&
         holding->least == std::max<Count>(line.least, 1) && holding->busy == line.busy &&
         holding->given_back == line.given_back && (outlives_fence || !line.outlives_fence) &&
         state.reserved(line.limiter, member) == line.reserve;
}

bool rests(const State& state, MemberId id) {
  const auto member = state.members.find(id);
  if (member == state.members.end() || !member->second.about.knows_rest || state.reserves.contains(id)) return false;
  return std::all_of(state.limiters.begin(), state.limiters.end(), [&](const auto& limiter) {
    const auto holding = limiter.second.holdings.find(id);
    return holding == limiter.second.holdings.end() || is_at_rest(holding->second);
  });
}

std::set<MemberId> resting(const State& state) {
  std::set<MemberId> all;
  for (const auto& [id, member] : state.members) {
    if (member.about.knows_rest && !state.reserves.contains(id)) all.insert(id);
  }
  for (const auto& [name, limiter] : state.limiters) {
    for (const auto& [id, holding] : limiter.holdings) {
      if (!is_at_rest(holding)) all.erase(id);
    }
  }
  return all;
}

}  // namespace turnstile::tokens
