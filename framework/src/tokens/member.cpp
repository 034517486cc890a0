#include "tokens/member.hpp"

#include <algorithm>
#include <utility>

#include "tokens/planted.hpp"
#include "tokens/snapshot.hpp"

namespace turnstile::tokens {

namespace {

/// How many of its own checkpoints it keeps, because other members may still send theirs.
constexpr std::size_t kCheckpointsKept = 4;
/// How many lives of this process keep a reserve that the next life takes over: lives that failed since a life last
/// joined.
constexpr std::size_t kLivesKept = 16;
/// Older members propose the expiry of a silent member earlier. The step between two members, and the longest delay, as
/// parts of the lease.
constexpr Micros kRankSteps = 64;
constexpr Micros kRankMost = 8;

}  // namespace

Member::Member(MemberSettings settings) : settings_(std::move(settings)), id_(settings_.next_id()) {}

// --- inputs
// ------------------------------------------------------------------------------------------------------------

void Member::declare(const std::string& limiter, Count limit, bool strict, Count set_aside, Count reserve,
                     bool outlives_fence) {
  Use& use = uses_[limiter];
  use.limit = limit;
  use.strict = strict;
  use.outlives_fence = (use.outlives_fence && !use.closing) || outlives_fence;
  use.set_aside = set_aside;
  use.reserve = reserve;
  use.closing = false;
  next_keep_ = 0;
  next_tick_ = 0;
}

void Member::undeclare(const std::string& limiter, Micros now) {
  const auto found = uses_.find(limiter);
  if (found == uses_.end()) return;
  found->second.closing = true;
  if (phase_ != Phase::joined) uses_.erase(found);
  else if (!found->second.letting_go) let_go(limiter, found->second, now);
  next_tick_ = 0;
}

void Member::demand(const std::string& limiter, const Demand& demand) {
  const auto found = uses_.find(limiter);
  if (found == uses_.end() || found->second.demand == demand) return;
  found->second.demand = demand;
  found->second.peak = std::max(found->second.peak, demand.wants);
  next_tick_ = 0;
}

void Member::given_back(const std::string& limiter, Count total) {
  const auto found = uses_.find(limiter);
  if (found == uses_.end() || total <= found->second.given_back) return;
  found->second.given_back = std::min(total, found->second.granted);
  next_tick_ = 0;
}

void Member::claim(const Partition& partition, std::uint64_t fence) {
  partitions_[partition] = {.fence = fence};
  next_tick_ = 0;
}

bool Member::is_claiming() const {
  const auto claims = [](const Sent& sent) { return std::holds_alternative<PartitionsClaimed>(sent.event.body); };
  return std::any_of(partitions_.begin(), partitions_.end(), [](const auto& p) { return !p.second.said; }) ||
         std::any_of(unread_.begin(), unread_.end(), claims);
}

void Member::revoke(const std::vector<Partition>& partitions) {
  for (const Partition& partition : partitions) {
    if (partitions_.erase(partition) > 0) to_revoke_.push_back(partition);
  }
  next_tick_ = 0;
}

void Member::sending_failed() {
  if (phase_ == Phase::halted || phase_ == Phase::left) return;
  ++epoch_;
  seq_ = 0;
  join_sent_ = false;
  unread_.clear();
  for (auto& [partition, owned] : partitions_) owned.said = false;
  for (auto& [name, use] : uses_) use.said = {};
  next_tick_ = 0;
}

void Member::begin_anew() {
  if (phase_ != Phase::halted && phase_ != Phase::left) begin_life();
}

void Member::distrust(Micros now) {
  trusted_from_ = now;
  renewed_at_ = 0;
  next_keep_ = 0;
  next_tick_ = 0;
}

void Member::leave() {
  if (phase_ == Phase::joined) send(0, Left{});
  if (phase_ != Phase::halted) phase_ = Phase::left;
}

void Member::halt(std::string why) {
  if (phase_ == Phase::halted) return;
  phase_ = Phase::halted;
  why_halted_ = std::move(why);
  for (auto& [name, use] : uses_) forfeit(name, 0);
}

// --- records read
// ------------------------------------------------------------------------------------------------------

void Member::read(const State& state, Position position, const Event& event, const Effects& effects, Micros now) {
  if (phase_ == Phase::halted || phase_ == Phase::left) return;
  if (state.version > kNewestVersion) {
    halt("the token log is at version " + std::to_string(state.version) + " since position " +
         std::to_string(position) + ", and this program knows none above " + std::to_string(kNewestVersion) +
         "; run a newer one");
    return;
  }
  next_tick_ = 0;
  if (event.member == id_) read_own(state, position, event, effects, now);
  if (effects.ended) {
    forget(*effects.ended);
    if (const auto left = state.reserves.find(*effects.ended); left != state.reserves.end())
      expect(*effects.ended, {.at = now + Micros{left->second.ms} * 1'000});
    if (*effects.ended == id_) {
      ++expired_;
      begin_life();
    }
  }
  const auto sender = state.members.find(event.member);
  if (sender != state.members.end() && sender->second.last == position && event.member != id_)
    expect(event.member, {.at = now + Micros{sender->second.about.lease_ms} * 1'000});
  check_point(state, position, event);
  if (phase_ == Phase::joined) follow_all(state);
}

void Member::read_own(const State& state, Position position, const Event& event, const Effects& effects, Micros now) {
  if (event.epoch < epoch_) return;
  while (!unread_.empty() && unread_.front().event.seq < event.seq) unread_.pop_front();
  if (unread_.empty() || unread_.front().event != event) {
    // A second copy of an event that was read before changes nothing. Any other event with this id was written by
    // another program. If the state accepted it, this member cannot correct its account. It lets the account expire.
    const auto self = state.members.find(id_);
    if (self != state.members.end() && self->second.last == position) begin_life();
    return;
  }
  const Sent own = std::move(unread_.front());
  unread_.pop_front();
  if (std::holds_alternative<Joined>(event.body)) {
    if (effects.outcome == Effects::Outcome::revived || effects.outcome == Effects::Outcome::duplicate) {
      begin_life();
      return;
    }
    if (effects.outcome != Effects::Outcome::applied) {
      halt("the domain did not take this member in, at position " + std::to_string(position) + ": " +
           (state.members.size() >= kMostMembers
                ? "it has " + std::to_string(kMostMembers) + " members, which is the most"
                : "its lease, weight or name is out of range, or its version too old"));
      return;
    }
    if (phase_ == Phase::joining) {
      phase_ = Phase::joined;
      was_.clear();
      next_keep_ = 0;
      for (const auto& [id, member] : state.members) {
        if (id != id_) expect(id, {.at = now + Micros{member.about.lease_ms} * 1'000});
      }
      for (const auto& [id, reserve] : state.reserves) {
        if (!state.members.contains(id)) expect(id, {.at = now + Micros{reserve.ms} * 1'000});
      }
    }
  }
  see_what_is_gone(state, event);
  // An event that the state did not accept renews no lease: the other members use the same rule.
  const auto self = state.members.find(id_);
  const bool counted = self != state.members.end() && self->second.last == position;
  const Micros from = TURNSTILE_PLANTED(lease_from_the_answer) ? now : own.at;
  if ((counted || TURNSTILE_PLANTED(void_event_renews)) && own.at >= trusted_from_)
    renewed_at_ = std::max(renewed_at_, from);
}

/// Equal positions must have equal digests. A difference means that a member computes wrong, and no member can know
/// which.
void Member::check_point(const State& state, Position position, const Event& event) {
  if (position > 0 && position % settings_.checkpoint_every == 0) {
    checkpoints_.push_back({position, digest(state)});
    if (checkpoints_.size() > kCheckpointsKept) checkpoints_.pop_front();
    checkpoint_said_ = false;
  }
  const auto* keep = std::get_if<Keep>(&event.body);
  if (keep == nullptr || !keep->checkpoint || event.member == id_ || !state.members.contains(event.member)) return;
  for (const Checkpoint& own : checkpoints_) {
    if (own.position != keep->checkpoint->position) continue;
    if (own.digest != keep->checkpoint->digest) {
      const auto& other = state.members.at(event.member);
      halt(
          "this member and " + other.about.client + " (" + other.about.host + ", pid " +
          std::to_string(other.about.pid) + ") have come to different states at position " +
          std::to_string(own.position) +
          " of the token log. Nothing starts, since the limits may not hold. Stop all members of the domain, keep a copy of the "
          "log (turnstile log tail) for a report, and start them again");
      return;
    }
    agreed_ = std::max(agreed_, own.position);
  }
}

void Member::follow_all(const State& state) {
  for (auto& [name, use] : uses_) follow(state, name, use);
}

/// Learns which of its own lines the domain has accepted.
void Member::see_what_is_gone(const State& state, const Event& event) {
  const auto heard = [&](const std::string& name, Use& use) {
    use.letting_go = false;
    use.known = state.holding(name, id_) != nullptr;
    next_keep_ = 0;
  };
  const auto look = [&](const Line& line) {
    const auto use = uses_.find(line.limiter);
    if (use == uses_.end()) return;
    if (line.gone) heard(use->first, use->second);
    else use->second.refused = !use->second.letting_go && state.holding(line.limiter, id_) == nullptr;
  };
  if (const auto* keep = std::get_if<Keep>(&event.body)) std::for_each(keep->lines.begin(), keep->lines.end(), look);
  if (const auto* release = std::get_if<Release>(&event.body)) look(release->line);
  // Lines from before this epoch no longer count, unless they were applied already.
  if (std::holds_alternative<Joined>(event.body)) {
    for (auto& [name, use] : uses_) {
      if (use.letting_go && use.gone_in < event.epoch) heard(name, use);
    }
  }
  std::erase_if(uses_, [](const auto& of) { return of.second.closing && !of.second.letting_go && !of.second.known; });
}

void Member::reset(Use& use) {
  use.granted = use.given_back = use.surrender_to = 0;
  use.turn_over = false;
  use.turn_since.reset();
  use.idle_since.reset();
  use.fell_since.reset();
  use.said = {};
}

/// The state has no holding of this member: its account starts again.
void Member::start_over(const std::string& name, Use& use) {
  use.known = use.letting_go = false;
  reset(use);
  forfeit(name, 0);
}

/// Orders that were not taken yet concern permits that are lost now. A pool that opened them would start handlers with
/// them.
void Member::forfeit(const std::string& name, Count total) {
  std::erase_if(orders_, [&](const Order& order) { return order.limiter == name; });
  orders_.push_back({Order::Kind::forfeit, name, total});
}

/// Turns the member's holding in the state into orders to the pool.
void Member::follow(const State& state, const std::string& name, Use& use) {
  const Holding* holding = state.holding(name, id_);
  if (use.letting_go && !TURNSTILE_PLANTED(gone_said_and_opened)) return;
  if (holding == nullptr) {
    if (use.known) start_over(name, use);
    return;
  }
  use.known = true;
  use.refused = false;
  if (holding->given_back > use.given_back && !TURNSTILE_PLANTED(fence_not_followed)) {  // returned by a fence
    forfeit(name, holding->given_back);
    use.granted = use.given_back = use.surrender_to = holding->given_back;
  }
  if (holding->granted > use.granted) {
    use.granted = holding->granted;
    orders_.push_back({Order::Kind::open, name, use.granted});
  }
}

// --- time ------------------------------------------------------------------------------------------------------------

void Member::tick(const State& state, Micros now) {
  if (phase_ == Phase::halted || phase_ == Phase::left || now < next_tick_) return;
  next_tick_ = now + settings_.lease() / settings_.keeps_per_lease;
  if (!join_sent_) join(now);
  if (phase_ == Phase::joining) return;
  say_partitions(state, now);
  if (now >= next_keep_) keep(state, now);
  for (auto& [name, use] : uses_) balance(state, name, use, now);
  drain(state, now);
  watch(state, now);
  wake_at(next_keep_);
}

void Member::join(Micros now) {
  join_sent_ = true;
  if (epoch_ == 0) epoch_ = 1;
  Joined about = settings_.about;
  about.was = was_;
  send(now, std::move(about));
  if (phase_ == Phase::joined) next_keep_ = 0;
}

void Member::keep(const State& state, Micros now) {
  next_keep_ = now + settings_.lease() / settings_.keeps_per_lease;
  Keep keep;
  for (auto& [name, use] : uses_) {
    if (!use.closing && !use.letting_go) keep.lines.push_back(line(name, use, std::max(use.peak, use.demand.wants)));
  }
  if (!checkpoint_said_) {
    checkpoint_said_ = true;
    keep.checkpoint = checkpoints_.back();
  }
  send(now, std::move(keep));
  // Repeats events that may have been lost. First, that nothing runs any more.
  if (!TURNSTILE_PLANTED(drained_said_once)) drained_said_ = false;
  // Second, a claim that is not void, or no longer void because no member owns the partition.
  for (auto& [partition, owned] : partitions_) {
    const auto entry = state.partitions.find(partition);
    if (entry == state.partitions.end() || !state.members.contains(entry->second.owner) ||
        owned.fence > entry->second.fence)
      owned.said = false;
  }
  // Third, the revocation of partitions that the state still shows as owned by this member.
  for (const Partition& partition : state.members.at(id_).owns) {
    if (!partitions_.contains(partition)) to_revoke_.push_back(partition);
  }
  // Fourth, the end of limiters that this process no longer uses.
  for (const auto& [name, limiter] : state.limiters) {
    if (!limiter.holdings.contains(id_) || uses_.contains(name)) continue;
    Use& use = uses_[name];
    use.closing = use.known = true;
    let_go(name, use, now);
  }
}

/// Returns surplus permits, and requests missing ones.
void Member::balance(const State& state, const std::string& name, Use& use, Micros now) {
  const Holding* holding = state.holding(name, id_);
  if (holding == nullptr || use.letting_go) return;
  if (use.closing) return let_go(name, use, now);
  const LimiterEntry& limiter = state.limiters.find(name)->second;
  const Count limit = limiter.shared();
  const Count held = use.held();
  const Demand& demand = use.demand;
  Count target = std::min(held, holding->draining ? 0 : holding->share);
  const bool contended = limiter.wanted > limit;
  bool idle = false;
  if (contended && use.demand.wants < held) {
    if (!use.idle_since) use.idle_since = now;
    idle = now - *use.idle_since >= settings_.linger;
    if (idle) target = std::min(target, use.demand.wants);
    else wake_at(*use.idle_since + settings_.linger);
  } else {
    use.idle_since.reset();
  }
  // A turn begins when the member holds enough to use. Before, while it collects permits that it needs together, it has
  // not had a turn.
  // The turn continues while permits are returned and requested again. Otherwise such a member would stay first in line
  // forever.
  const bool enough = held > 0 && (held >= use.demand.least || TURNSTILE_PLANTED(turn_from_the_first_permit));
  if ((held == 0 && use.demand.wants == 0) || (!enough && TURNSTILE_PLANTED(turn_ends_with_what_is_held)))
    use.turn_since.reset();
  else if (enough && !use.turn_since) use.turn_since = now;
  if (limiter.starved && use.turn_since) {
    if (now - *use.turn_since >= settings_.turn) use.turn_over = true;
    else wake_at(*use.turn_since + settings_.turn);
  }
  if (use.turn_over && held > 0) target = 0;
  if (const Count to = use.given_back + (held - target); to != use.surrender_to) {
    use.surrender_to = to;
    orders_.push_back({Order::Kind::surrender, name, to});
  }

  // A request that is no longer needed keeps permits from others. It is not withdrawn after only a short lull.
  const bool fell = demand.urgent < use.said.urgent || demand.least < use.said.least ||
                    (demand.wants < use.said.wants && held < use.said.wants);
  bool overdue = false;
  if (fell && (contended || limiter.starved) && !TURNSTILE_PLANTED(falls_not_said)) {
    if (!use.fell_since) use.fell_since = now;
    overdue = now - *use.fell_since >= settings_.turn;
    if (!overdue) wake_at(*use.fell_since + settings_.turn);
  } else {
    use.fell_since.reset();
  }
  if (use.given_back > use.said.given_back) {
    if (use.turn_over) use.turn_since.reset();
    send(now, Release{line(name, use, idle ? demand.wants : std::max(use.peak, demand.wants))});
  } else if (const Count wants = std::min(demand.wants, limit);
             !holding->draining &&
             (overdue || (use.turn_over && held == 0) || wants > use.said.wants ||
              (demand.wants > held && (demand.urgent > use.said.urgent || demand.least > use.said.least)))) {
    if (use.turn_over) use.turn_since.reset();
    send(now, Acquire{line(name, use, demand.wants)});
  }
}

void Member::let_go(const std::string& name, Use& use, Micros now) {
  Line last = line(name, use, 0);
  last.gone = true;
  last.reserve = 0;
  reset(use);
  use.demand = {};
  use.peak = 0;
  use.letting_go = true;
  use.gone_in = epoch_;
  send(now, Release{std::move(last)});
}

void Member::say_partitions(const State& state, Micros now) {
  if (!to_revoke_.empty()) send(now, PartitionsRevoked{std::exchange(to_revoke_, {})});
  PartitionsClaimed claimed;
  for (auto& [partition, owned] : partitions_) {
    // Until this member's revocation is read back, the state shows a claim that is already released.
    if (owned.said || is_revoking(partition)) continue;
    owned.said = true;
    const auto entry = state.partitions.find(partition);
    const bool known = entry != state.partitions.end();
    if (known && entry->second.owner == id_ && entry->second.fence == owned.fence) continue;
    claimed.claims.push_back(
        {.partition = partition, .fence = owned.fence, .previous = known ? entry->second.claimed_at : kNowhere});
  }
  if (!claimed.claims.empty()) send(now, std::move(claimed));
}

bool Member::is_revoking(const Partition& partition) const {
  return std::any_of(unread_.begin(), unread_.end(), [&](const Sent& sent) {
    const auto* revoked = std::get_if<PartitionsRevoked>(&sent.event.body);
    return revoked != nullptr &&
           std::find(revoked->partitions.begin(), revoked->partitions.end(), partition) != revoked->partitions.end();
  });
}

bool Member::is_draining(const State& state) const {
  const auto self = state.members.find(id_);
  return self != state.members.end() && self->second.draining;
}

/// Other members claimed all partitions of this member. It reports when nothing runs any more under permits that a
/// fence returns.
void Member::drain(const State& state, Micros now) {
  if (!is_draining(state)) {
    drained_said_ = false;
    return;
  }
  const bool empty = std::all_of(uses_.begin(), uses_.end(), [&](const auto& u) {
    const Holding* holding = state.holding(u.first, id_);
    if (holding != nullptr && holding->outlives_fence) return true;
    return u.second.held() == 0 && u.second.demand.busy == 0;
  });
  if (empty && !std::exchange(drained_said_, true)) send(now, Drained{});
}

/// Proposes the expiry of each member that has been silent for its lease; the oldest member does so first.
void Member::watch(const State& state, Micros now) {
  while (!due_order_.empty() && due_order_.begin()->first <= now) {
    const MemberId id = due_order_.begin()->second;
    const auto silent = state.members.find(id);
    const bool reserves = silent == state.members.end() && state.reserves.contains(id);
    if (silent == state.members.end() && !reserves) {
      forget(id);
      continue;
    }
    const Due due = due_.at(id);
    const Micros lease = settings_.lease();
    if (!due.ranked) {
      const Position own = state.members.at(id_).joined_at;
      const auto older = std::count_if(state.members.begin(), state.members.end(),
                                       [&](const auto& m) { return m.first != id && m.second.joined_at < own; });
      expect(id, {.at = due.at + std::min(older * (lease / kRankSteps), lease / kRankMost), .ranked = true});
      continue;
    }
    send(now, reserves ? Expire{id, kNowhere, true} : Expire{id, silent->second.last});
    expect(id, {.at = now + lease / kRankMost, .ranked = true});
  }
  if (!due_order_.empty()) wake_at(due_order_.begin()->first);
}

void Member::expect(MemberId id, Due due) {
  forget(id);
  due_[id] = due;
  due_order_.insert({due.at, id});
}

void Member::forget(MemberId id) {
  const auto known = due_.find(id);
  if (known == due_.end()) return;
  due_order_.erase({known->second.at, id});
  due_.erase(known);
}

// --- outputs
// -----------------------------------------------------------------------------------------------------------

void Member::begin_life() {
  if (join_sent_) was_.push_back(id_);
  if (was_.size() > kLivesKept) was_.erase(was_.begin());
  id_ = settings_.next_id();
  epoch_ = 0;
  seq_ = 0;
  phase_ = Phase::joining;
  join_sent_ = false;
  unread_.clear();
  renewed_at_ = 0;
  drained_said_ = false;
  due_.clear();
  due_order_.clear();
  to_revoke_.clear();
  for (auto& [partition, owned] : partitions_) owned.said = false;
  std::erase_if(uses_, [](const auto& of) { return of.second.closing; });
  for (auto& [name, use] : uses_) start_over(name, use);
  next_tick_ = 0;
}

Line Member::line(const std::string& name, Use& use, Count wants) {
  use.said = {.limiter = name,
              .limit = use.limit,
              .strict = use.strict,
              .wants = std::min(wants, kMostPermits),
              .urgent = std::min(use.demand.urgent, wants),
              .least = use.demand.least,
              .busy = use.demand.busy,
              .given_back = use.given_back,
              .set_aside = use.set_aside,
              .turn_over = std::exchange(use.turn_over, false),
              .outlives_fence = use.outlives_fence,

              .reserve = use.reserve};
  use.peak = use.demand.wants;
  return use.said;
}

void Member::send(Micros now, decltype(Event::body) body) {
  events_.push_back({.member = id_, .epoch = epoch_, .seq = ++seq_, .body = std::move(body)});
  unread_.push_back({.event = events_.back(), .at = now});
}

std::vector<Event> Member::take_events() { return std::exchange(events_, {}); }
std::vector<Order> Member::take_orders() { return std::exchange(orders_, {}); }

Micros Member::reserve_until() const {
  if (phase_ != Phase::joined || renewed_at_ == 0) return 0;
  const Micros lasts = Micros{settings_.about.reserve_ms} * 1'000;
  return renewed_at_ + lasts - lasts / settings_.margin_divisor;
}

Count Member::reserved(const State& state, const std::string& limiter) const {
  const auto use = uses_.find(limiter);
  if (phase_ != Phase::joined || use == uses_.end() || use->second.closing || use->second.letting_go) return 0;
  return state.reserved(limiter, id_);
}

bool Member::is_refused(const std::string& limiter) const {
  const auto use = uses_.find(limiter);
  return use != uses_.end() && use->second.refused;
}

Micros Member::open_until() const {
  if (phase_ != Phase::joined || renewed_at_ == 0) return 0;
  if (TURNSTILE_PLANTED(no_clock_margin)) return renewed_at_ + settings_.lease();
  return renewed_at_ + settings_.lease() - settings_.lease() / settings_.margin_divisor;
}

}  // namespace turnstile::tokens
