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
constexpr std::size_t kMostLives = 16;

/// Applies an event, and lives as long as that takes.
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
        joined.client.size() > kLongestName || joined.most_limiters > kMostLimiters || joined.was.size() > kMostLives)
      return Outcome::not_allowed;
    const auto known = state_.members.find(event_.member);
    if (known == state_.members.end()) {
      if (state_.members.size() >= kMostMembers) return Outcome::not_allowed;
      MemberEntry& member = state_.members[event_.member];
      member.joined_at = at_;
      begin_epoch(member, joined);
      for (const MemberId was : joined.was) take_over_reserve(was, joined.reserve_ms);
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
        if (claim.partition.topic.size() > kLongestName || claim.partition.group.size() > kLongestName ||
            claim.partition.store.size() > kLongestName)
          continue;
        const auto known = state_.partitions.find(claim.partition);
        if (known == state_.partitions.end() && !make_room_for_a_partition()) continue;
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
      // The member writes, and nothing of its lost partitions runs any more: it was only slower than the new owners.
      if (member.draining && member.unfenced.empty()) set_draining(event_.member, member, false);
      return Outcome::applied;
    });
  }

  Outcome operator()(const Drained&) {
    return as_member([&](MemberEntry& member) {
      if (!member.draining) return Outcome::stale;
      member.unfenced.clear();
      // Its permits returned with its lines before this event. Permits that it holds now were granted after it wrote
      // this.
      set_draining(event_.member, member, false);
      return Outcome::applied;
    });
  }

  Outcome operator()(const Expire& expire) {
    return as_member([&](MemberEntry&) {
      const auto silent = state_.members.find(expire.member);
      if (expire.reserve) {
        if (silent != state_.members.end() || !state_.reserves.contains(expire.member)) return Outcome::stale;
        drop_reserve(expire.member);
        return Outcome::applied;
      }
      // A member that proposes its own expiry has just written an event, so its proposal is stale.
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
      drop_reserve(event_.member);
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
      if (state_.limiters.size() >= state_.most_limiters()) return Outcome::not_allowed;
    }
    state_.limits_set_at = at_;
    LimiterEntry& limiter = state_.limiters[change.limiter];
    limiter.set = change.limit;
    settle(limiter);
    if (is_unused(limiter)) state_.limiters.erase(change.limiter);
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
    member.about.was.clear();  // it is applied already
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
        line.set_aside > kMostPermits || line.reserve > kMostPermits)
      return Outcome::not_allowed;
    if (line.gone) return let_go(line.limiter);
    auto found = state_.limiters.find(line.limiter);
    if (found == state_.limiters.end()) {
      if (state_.limiters.size() >= state_.most_limiters()) return Outcome::not_allowed;
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
    // A second settle() changes nothing, so a Keep without news can skip it. A member that wants nothing is not in the
    // line.
    if (holding.wants == 0) before.in_line_since = holding.in_line_since;
    if (is_new || holding != before) settle(found->second);
    holding.strict = line.strict;
    holding.busy = line.busy;
    reserve(line, found->second);
    return Outcome::applied;
  }

  /// The member no longer uses the limiter.
  Outcome let_go(const std::string& name) {
    const auto found = state_.limiters.find(name);
    if (found == state_.limiters.end() || found->second.holdings.erase(event_.member) == 0) return Outcome::stale;
    set_reserve(event_.member, name, found->second, 0);
    if (is_unused(found->second)) state_.limiters.erase(found);
    else settle(found->second);
    return Outcome::applied;
  }

  static bool is_unused(const LimiterEntry& limiter) {
    return limiter.holdings.empty() && !limiter.set && limiter.reserved == 0;
  }

  /// A member gets a reserve if there is room in the part that is set aside, and in the limit beside the held permits.
  /// Held and reserved permits together never exceed the limit, unless the limit was lowered.
  void reserve(const Line& line, LimiterEntry& limiter) {
    const Count has = state_.reserved(line.limiter, event_.member);
    if (line.reserve == has) return;
    Count gets = line.reserve;
    if (line.reserve > has) {
      if (state_.reserves.size() >= kMostMembers && !state_.reserves.contains(event_.member)) return;
      const Count limit = limiter.limit();
      Count room = std::min(limiter.aside(), limit - std::min(limit, limiter.held()));
      room -= std::min(room, limiter.reserved);
      gets = TURNSTILE_PLANTED(reserve_without_room) ? line.reserve : std::min(line.reserve, has + room);
      if (gets == has) return;
    }
    set_reserve(event_.member, line.limiter, limiter, gets);
    settle(limiter);
  }

  void set_reserve(MemberId id, const std::string& name, LimiterEntry& limiter, Count count) {
    const Count had = state_.reserved(name, id);
    if (had == count) return;
    limiter.reserved = limiter.reserved - had + count;
    Reserve& reserve = state_.reserves[id];
    if (count > 0) reserve.of[name] = count;
    else reserve.of.erase(name);
    if (const auto member = state_.members.find(id); member != state_.members.end())
      reserve.ms = member->second.about.reserve_ms;
    if (reserve.of.empty()) state_.reserves.erase(id);
  }

  /// An earlier life of the same process: the process knows what it uses of that reserve.
  void take_over_reserve(MemberId was, std::uint32_t ms) {
    if (was == event_.member) return;
    const auto left = state_.reserves.extract(was);
    if (!left) return;
    Reserve& reserve = state_.reserves[event_.member];
    reserve.ms = ms;
    for (const auto& [name, count] : left.mapped().of) reserve.of[name] += count;
  }

  void drop_reserve(MemberId id) {
    const auto found = state_.reserves.find(id);
    if (found == state_.reserves.end()) return;
    for (const auto& [name, count] : found->second.of) {
      const auto entry = state_.limiters.find(name);
      entry->second.reserved -= count;
      if (is_unused(entry->second)) state_.limiters.erase(entry);
      else settle(entry->second);
    }
    state_.reserves.erase(found);
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

  /// With a fence the database decides the order; equal fences are two lives of a process. Without a fence the log
  /// decides.
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

  /// Earlier owners that lost the partition without a fence are fenced there now.
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

  /// The member's permits return, except those of strict limiters, and those of limiters with calls that the fence does
  /// not reject.
  void reclaim(MemberId id) {
    for (auto& [name, limiter] : state_.limiters) {
      const auto holding = limiter.holdings.find(id);
      if (holding == limiter.holdings.end()) continue;
      if (limiter.strict() && !TURNSTILE_PLANTED(fence_reclaims_strict)) continue;
      if (holding->second.outlives_fence && !TURNSTILE_PLANTED(fence_reclaims_services)) continue;
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
      entry = is_unused(limiter) ? state_.limiters.erase(entry) : std::next(entry);
    }
    if (TURNSTILE_PLANTED(reserve_ends_with_the_lease)) drop_reserve(id);
    state_.ended[at_] = id;
    state_.ended_ids.insert(id);
    if (state_.ended.size() > kRememberedLives) {
      state_.ended_ids.erase(state_.ended.begin()->second);
      state_.ended.erase(state_.ended.begin());
    }
    effects_.ended = id;
  }

  /// Computes the shares, and grants free permits.
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

Count LimiterEntry::aside() const {
  Count most = reserved;
  for (const auto& [id, holding] : holdings) most = std::max(most, holding.set_aside);
  return most;
}

Count LimiterEntry::shared() const {
  const Count all = limit();
  return all - std::min(all, aside());
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

Count State::reserved(std::string_view limiter, MemberId member) const {
  const auto reserve = reserves.find(member);
  if (reserve == reserves.end()) return 0;
  const auto of = reserve->second.of.find(limiter);
  return of == reserve->second.of.end() ? 0 : of->second;
}

std::size_t State::most_limiters() const {
  std::size_t most = 0;
  for (const auto& [id, member] : members) most = std::max<std::size_t>(most, member.about.most_limiters);
  return most > 0 ? most : kDefaultLimiters;
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
