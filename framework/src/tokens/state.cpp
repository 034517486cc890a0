#include "tokens/state.hpp"

#include <algorithm>
#include <array>

#include "tokens/planted.hpp"
#include "tokens/shares.hpp"

namespace turnstile::tokens {

namespace {

using Outcome = Effects::Outcome;

constexpr std::uint32_t kShortestLeaseMs = 10;
constexpr std::uint32_t kLongestLeaseMs = 24 * 3'600 * 1'000;
constexpr std::uint32_t kMostWeight = 1'000;

/// Applies one event; lives for as long as that takes.
class Application {
 public:
  Application(State& state, Position at, const Event& event, Effects& effects)
      : state_(state), at_(at), event_(event), effects_(effects) {}

  Outcome operator()(const Unknown&) { return Outcome::unknown; }

  Outcome operator()(const Joined& joined) {
    if (event_.member == 0 || event_.epoch == 0 || event_.seq == 0) return Outcome::not_allowed;
    if (state_.ended_ids.contains(event_.member) && !TURNSTILE_PLANTED(late_joined_revives)) return Outcome::revived;
    if (joined.lease_ms < kShortestLeaseMs || joined.lease_ms > kLongestLeaseMs || joined.weight < 1 ||
        joined.weight > kMostWeight || joined.knows < state_.version || joined.host.size() > kLongestName ||
        joined.client.size() > kLongestName)
      return Outcome::not_allowed;
    const auto known = state_.members.find(event_.member);
    if (known == state_.members.end()) {
      if (state_.members.size() >= kMostMembers) return Outcome::not_allowed;
      MemberEntry& member = state_.members[event_.member];
      member.joined_at = at_;
      begin_epoch(member, joined);
      return Outcome::applied;
    }
    if (event_.epoch < known->second.epoch) return Outcome::old_epoch;
    if (event_.epoch == known->second.epoch) return Outcome::duplicate;
    begin_epoch(known->second, joined);
    for (auto& [name, limiter] : state_.limiters) {
      const auto holding = limiter.holdings.find(event_.member);
      if (holding == limiter.holdings.end()) continue;
      holding->second.weight = joined.weight;
      settle(limiter);
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
        if (claim.partition.topic.size() > kLongestName) continue;
        const auto known = state_.partitions.find(claim.partition);
        if (known == state_.partitions.end() && state_.partitions.size() >= kMostPartitions) continue;
        const PartitionEntry before = known == state_.partitions.end() ? PartitionEntry{} : known->second;
        if (!follows(claim, before)) continue;
        if (before.owner != event_.member) displace(before.owner, claim, displaced);
        state_.partitions[claim.partition] = {
            .owner = event_.member, .claimed_at = at_, .fence = std::max(claim.fence, before.fence)};
        member.owns.insert(claim.partition);
        member.unfenced.erase(claim.partition);
        if (claim.fence > 0) fence(claim.partition);
        outcome = Outcome::applied;
      }
      for (const MemberId id : displaced) {
        MemberEntry& old = state_.members.at(id);
        if (old.owns.empty() && !old.draining) drain(id, old);
      }
      return outcome;
    });
  }

  Outcome operator()(const PartitionsRevoked& revoked) {
    return as_member([&](MemberEntry& member) {
      for (const Partition& partition : revoked.partitions) {
        member.unfenced.erase(partition);
        if (member.owns.erase(partition) > 0) give_up(partition);
      }
      // It speaks, and nothing of what it lost runs any more: it was only slower than those who claimed.
      if (member.draining && member.unfenced.empty()) set_draining(event_.member, member, false);
      return Outcome::applied;
    });
  }

  Outcome operator()(const Drained&) {
    return as_member([&](MemberEntry& member) {
      if (!member.draining) return Outcome::stale;
      member.unfenced.clear();
      // Its permits came back with its lines, before this. What it holds now, it was given since it wrote this.
      set_draining(event_.member, member, false);
      return Outcome::applied;
    });
  }

  Outcome operator()(const Expire& expire) {
    return as_member([&](MemberEntry&) {
      const auto silent = state_.members.find(expire.member);
      // The one who says so has just written something itself.
      if (silent == state_.members.end()) return Outcome::stale;
      if (silent->second.last > expire.silent_since && !TURNSTILE_PLANTED(expire_despite_later_writing))
        return Outcome::stale;
      end(expire.member);
      return Outcome::applied;
    });
  }

  Outcome operator()(const Left&) {
    return as_member([&](MemberEntry&) {
      end(event_.member);
      return Outcome::applied;
    });
  }

  Outcome operator()(const LimitSet& change) {
    if (change.limiter.empty() || change.limiter.size() > kLongestName || change.limit.value_or(0) > kMostPermits)
      return Outcome::not_allowed;
    if (change.seen < state_.limits_set_at && !TURNSTILE_PLANTED(limit_set_unseen)) return Outcome::stale;
    if (change.seen >= at_) return Outcome::stale;
    const auto known = state_.limiters.find(change.limiter);
    if (known == state_.limiters.end()) {
      if (!change.limit) return Outcome::stale;
      if (state_.limiters.size() >= kMostLimiters) return Outcome::not_allowed;
    }
    state_.limits_set_at = at_;
    LimiterEntry& limiter = state_.limiters[change.limiter];
    limiter.set = change.limit;
    settle(limiter);
    if (limiter.holdings.empty() && !limiter.set) state_.limiters.erase(change.limiter);
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

 private:
  void begin_epoch(MemberEntry& member, const Joined& joined) {
    member.about = joined;
    member.epoch = event_.epoch;
    member.seq = event_.seq;
    member.last = at_;
  }

  /// Runs `body` if the event is a new one of a member.
  template <class Body>
  Outcome as_member(Body body) {
    const auto found = state_.members.find(event_.member);
    if (found == state_.members.end()) return Outcome::stranger;
    MemberEntry& member = found->second;
    const bool is_release = std::holds_alternative<Release>(event_.body);
    if (event_.epoch < member.epoch && !(is_release && TURNSTILE_PLANTED(late_release_of_an_old_epoch)))
      return Outcome::old_epoch;
    if (event_.epoch > member.epoch) return Outcome::not_allowed;  // an epoch begins with Joined
    if (event_.seq <= member.seq && !TURNSTILE_PLANTED(duplicates_applied)) return Outcome::duplicate;
    member.seq = event_.seq;
    member.last = at_;
    return body(member);
  }

  Outcome take(const MemberEntry& member, const Line& line) {
    if (line.limiter.empty() || line.limiter.size() > kLongestName || line.limit > kMostPermits ||
        line.wants > kMostPermits || line.least > kMostPermits || line.busy > kMostPermits ||
        line.set_aside > kMostPermits)
      return Outcome::not_allowed;
    auto found = state_.limiters.find(line.limiter);
    if (found == state_.limiters.end()) {
      if (state_.limiters.size() >= kMostLimiters) return Outcome::not_allowed;
      found = state_.limiters.try_emplace(line.limiter).first;
    }
    auto& holdings = found->second.holdings;
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
    const bool turn_over = line.turn_over && !TURNSTILE_PLANTED(turns_not_taken);
    if (is_new || holding.wants == 0 || turn_over) holding.in_line_since = at_;
    if (TURNSTILE_PLANTED(rejected_below_the_newest_holder) &&
        std::any_of(holdings.begin(), holdings.end(),
                    [&](const auto& other) { return other.second.held_since > holding.held_since; }))
      return Outcome::not_allowed;
    holding.limit = line.limit;
    holding.set_aside = line.set_aside;
    holding.wants = line.wants;
    holding.urgent = std::min(line.urgent, line.wants);
    holding.least = std::max<Count>(line.least, 1);
    const Count back = TURNSTILE_PLANTED(release_frees_twice) ? holding.given_back + line.given_back : line.given_back;
    holding.given_back = std::min(std::max(holding.given_back, back), holding.granted);
    // Settling twice is settling once, so that a Keep which says nothing new costs nothing. Who wants nothing stands in no line.
    if (holding.wants == 0) before.in_line_since = holding.in_line_since;
    if (is_new || holding != before) settle(found->second);
    holding.strict = line.strict;
    holding.busy = line.busy;
    return Outcome::applied;
  }

  /// With a fence the database has decided who came last; equal ones are two lives of one process. Without, the log decides.
  bool follows(const PartitionsClaimed::Claim& claim, const PartitionEntry& before) const {
    if (TURNSTILE_PLANTED(stale_claim_accepted)) return true;
    if (claim.fence == 0) return claim.previous == before.claimed_at;
    return claim.fence > before.fence || (claim.fence == before.fence && !state_.members.contains(before.owner));
  }

  void displace(MemberId id, const PartitionsClaimed::Claim& claim, std::set<MemberId>& displaced) {
    const auto old = state_.members.find(id);
    if (old == state_.members.end()) return;
    old->second.owns.erase(claim.partition);
    if (claim.fence == 0) old->second.unfenced.insert(claim.partition);
    displaced.insert(id);
  }

  /// Whoever had the partition before, and lost it without a fence, is fenced there now.
  void fence(const Partition& partition) {
    for (auto& [id, member] : state_.members) {
      if (member.unfenced.erase(partition) > 0 && member.unfenced.empty() && member.draining) reclaim(id);
    }
  }

  void give_up(const Partition& partition) {
    PartitionEntry& entry = state_.partitions.at(partition);
    entry.owner = 0;
    entry.claimed_at = at_;
  }

  void drain(MemberId id, MemberEntry& member) {
    set_draining(id, member, true);
    effects_.drained.push_back(id);
    if (member.unfenced.empty() || TURNSTILE_PLANTED(unfenced_reclaimed_at_once)) reclaim(id);
  }

  void set_draining(MemberId id, MemberEntry& member, bool draining) {
    member.draining = draining;
    for (auto& [name, limiter] : state_.limiters) {
      const auto holding = limiter.holdings.find(id);
      if (holding == limiter.holdings.end() || holding->second.outlives_fence) continue;
      holding->second.draining = draining;
      settle(limiter);
    }
  }

  /// What the member holds comes back, but under strict limiters, and where it runs calls that the fence does not refuse.
  void reclaim(MemberId id) {
    for (auto& [name, limiter] : state_.limiters) {
      const auto holding = limiter.holdings.find(id);
      if (holding == limiter.holdings.end()) continue;
      if (limiter.strict() && !TURNSTILE_PLANTED(fence_reclaims_strict)) continue;
      if (holding->second.outlives_fence) continue;
      holding->second.given_back = holding->second.granted;
      settle(limiter);
    }
    effects_.reclaimed.push_back(id);
  }

  void end(MemberId id) {
    state_.members.erase(id);
    for (auto entry = state_.limiters.begin(); entry != state_.limiters.end();) {
      LimiterEntry& limiter = entry->second;
      if (limiter.holdings.erase(id) > 0) settle(limiter);
      entry = limiter.holdings.empty() && !limiter.set ? state_.limiters.erase(entry) : std::next(entry);
    }
    state_.ended[at_] = id;
    state_.ended_ids.insert(id);
    if (state_.ended.size() > kRememberedLives) {
      state_.ended_ids.erase(state_.ended.begin()->second);
      state_.ended.erase(state_.ended.begin());
    }
    effects_.ended = id;
  }

  /// Shares anew, and grants what is free.
  void settle(LimiterEntry& limiter) {
    const Count limit = limiter.shared();
    Count held = 0, draining = 0;
    limiter.wanted = 0;
    line_.clear();
    for (auto& [id, holding] : limiter.holdings) {
      holding.share = 0;
      if (holding.draining && TURNSTILE_PLANTED(draining_not_counted)) continue;
      if (holding.wants == 0 && TURNSTILE_PLANTED(counted_by_place_in_line)) continue;
      held += holding.held();
      if (holding.draining) draining += holding.held();
      if (holding.draining || holding.wants == 0) continue;
      limiter.wanted += holding.wants;
      line_.push_back(&holding);
    }
    std::sort(line_.begin(), line_.end(),
              [](const Holding* a, const Holding* b) { return a->in_line_since < b->in_line_since; });
    wishes_.clear();
    for (const Holding* holding : line_)
      wishes_.push_back(
          {.wants = holding->wants, .urgent = holding->urgent, .least = holding->least, .weight = holding->weight});
    limiter.starved = divide(limit - std::min(limit, draining), wishes_);
    Count free = limit - (TURNSTILE_PLANTED(lowered_limit_grants) ? held : std::min(limit, held));
    for (std::size_t i = 0; i < line_.size(); ++i) {
      Holding& holding = *line_[i];
      holding.share = wishes_[i].share;
      if (free == 0 || holding.held() >= holding.share) continue;
      const Count more = std::min(free, holding.share - holding.held());
      if (holding.held() == 0) holding.held_since = at_;
      holding.granted += more;
      free -= more;
    }
  }

  State& state_;
  const Position at_;
  const Event& event_;
  Effects& effects_;
  std::vector<Holding*> line_;
  std::vector<Wish> wishes_;
};

}  // namespace

Count LimiterEntry::limit() const {
  if (set) return *set;
  Count lowest = 0;
  for (const auto& [id, holding] : holdings) {
    if (holding.limit > 0 && (lowest == 0 || holding.limit < lowest)) lowest = holding.limit;
  }
  return lowest;
}

Count LimiterEntry::held() const {
  Count sum = 0;
  for (const auto& [id, holding] : holdings) sum += holding.held();
  return sum;
}

Count LimiterEntry::shared() const {
  const Count all = limit();
  Count aside = 0;
  for (const auto& [id, holding] : holdings) aside = std::max(aside, holding.set_aside);
  return all - std::min(all, aside);
}

bool LimiterEntry::strict() const {
  return std::any_of(holdings.begin(), holdings.end(), [](const auto& h) { return h.second.strict; });
}

const Holding* State::holding(std::string_view limiter, MemberId member) const {
  const auto entry = limiters.find(limiter);
  if (entry == limiters.end()) return nullptr;
  const auto found = entry->second.holdings.find(member);
  return found == entry->second.holdings.end() ? nullptr : &found->second;
}

Count State::held(std::string_view limiter, MemberId member) const {
  const Holding* found = holding(limiter, member);
  return found == nullptr ? 0 : found->held();
}

std::string_view to_text(Effects::Outcome outcome) {
  static constexpr std::array<std::string_view, 8> kTexts{"applied",  "unknown", "duplicate", "old epoch",
                                                          "stranger", "revived", "stale",     "not allowed"};
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

}  // namespace turnstile::tokens
