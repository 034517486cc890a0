#include "tokens/member.hpp"

#include <algorithm>
#include <utility>

#include "tokens/parts.hpp"
#include "tokens/planted.hpp"
#include "tokens/records.hpp"

namespace turnstile::tokens {

namespace {

/// How many lives of this process keep a reserve that the next life takes over: lives that failed since a life last
/// joined.
constexpr std::size_t kLivesKept = 16;
// The conditions of the rules. A planted bug overrides one of them.

/// The lease counts from when the event was sent, not from when it was read back.
Micros lease_begins(Micros sent_at, Micros read_at) {
  return TURNSTILE_PLANTED(lease_from_the_answer) ? read_at : sent_at;
}
/// An event that the state did not accept renews no lease: the other members use the same rule.
bool renews(bool accepted) { return accepted || TURNSTILE_PLANTED(void_event_renews); }
Micros margin_of(const MemberSettings& settings) {
  return TURNSTILE_PLANTED(no_clock_margin) ? 0 : settings.lease() / settings.margin_divisor;
}
/// Whether it reports again with each Keep that nothing runs any more.
bool repeats_drained() { return !TURNSTILE_PLANTED(drained_said_once); }
/// A member of a build before knows_rest expires a member that rests after its usual lease.
bool know_rest(const State& state) {
  return TURNSTILE_PLANTED(rests_beside_others) || std::all_of(state.members.begin(), state.members.end(),
                                                               [](const auto& m) { return m.second.about.knows_rest; });
}

}  // namespace

Member::Member(MemberSettings settings)
    : settings_(std::move(settings)),
      id_(settings_.next_id()),
      lease_ends_(settings_.lease(), settings_.about.knows_rest),
      checkpoints_(settings_.checkpoint_every) {}

// --- inputs ----------------------------------------------------------------------------------------------------------

void Member::declare(const std::string& limiter, Count limit, bool strict, Count set_aside, Count reserve,
                     bool outlives_fence) {
  LimiterUse& use = uses_[limiter];
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
  rested_ = false;
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

// --- records read ----------------------------------------------------------------------------------------------------

void Member::read(const State& state, Position position, const Event& event, const Effects& effects, Micros now) {
  if (phase_ == Phase::halted || phase_ == Phase::left) return;
  if (state.version > kNewestVersion) {
    halt(settings_.log + " has version " + std::to_string(state.version) + " since position " +
         std::to_string(position) + ", but this program knows versions only up to " + std::to_string(kNewestVersion) +
         "; run a newer program");
    return;
  }
  next_tick_ = 0;
  if (event.member == id_) read_own(state, position, event, effects, now);
  if (effects.ended) {
    lease_ends_.forget(*effects.ended);
    if (const auto left = state.reserves.find(*effects.ended); left != state.reserves.end())
      lease_ends_.heard_from(*effects.ended, left->second.ms, now);
    if (*effects.ended == id_) {
      ++expired_;
      begin_life();
    }
  }
  const auto sender = state.members.find(event.member);
  if (sender != state.members.end() && sender->second.last == position && event.member != id_)
    lease_ends_.heard_from(event.member, sender->second.about.lease_ms, now);
  const auto* const joined = std::get_if<Joined>(&event.body);
  if (rested_ && joined != nullptr && !joined->knows_rest) next_keep_ = 0;
  if (auto why = checkpoints_.read(id_, state, position, event)) halt(settings_.log + ": " + *why);
  if (phase_ != Phase::joined) return;
  for (auto& [name, use] : uses_) follow(state, name, use);
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
    using Outcome = Effects::Outcome;
    // Elsewhere: this is a directory that needs no members any more.
    if (effects.outcome == Outcome::revived || effects.outcome == Outcome::duplicate ||
        effects.outcome == Outcome::elsewhere)
      return begin_life();
    if (effects.outcome != Outcome::applied) {
      rejected_ = true;
      halt(settings_.log + ": the domain rejected this member at position " + std::to_string(position) + ": " +
           (state.members.size() >= kMostMembers
                ? "it already has its maximum of " + std::to_string(kMostMembers) + " members"
                : "the lease, weight or name of this member is out of range, or its version is too old") +
           (state.part > 0
                ? ". No handler starts under the limits that live in this part, until this process is restarted"
                : ""));
      return;
    }
    if (phase_ == Phase::joining) {
      phase_ = Phase::joined;
      was_.clear();
      next_keep_ = 0;
      for (const auto& [id, member] : state.members) {
        if (id != id_) lease_ends_.heard_from(id, member.about.lease_ms, now);
      }
      for (const auto& [id, reserve] : state.reserves) {
        if (!state.members.contains(id)) lease_ends_.heard_from(id, reserve.ms, now);
      }
    }
  }
  see_what_is_gone(state, event);
  const auto self = state.members.find(id_);
  const bool counted = self != state.members.end() && self->second.last == position;
  if (!renews(counted) || own.at < trusted_from_) return;
  renewed_at_ = std::max(renewed_at_, lease_begins(own.at, now));
  rested_ = false;
}

// --- time ------------------------------------------------------------------------------------------------------------

void Member::tick(const State& state, Micros now) {
  if (phase_ == Phase::halted || phase_ == Phase::left || now < next_tick_) return;
  next_tick_ = now + settings_.lease() / settings_.keeps_per_lease;
  // A directory has members only while somebody has permits in it: they expire those that are dead.
  const bool is_needed = !is_left(state);
  if (!join_sent_) {
    if (phase_ == Phase::joining && !is_needed) return;
    join(state, now);
  }
  if (phase_ == Phase::joining) return;
  if (!is_needed) return retire(now);
  say_partitions(state, now);
  if (now >= next_keep_) {
    const bool rests = next_keep_ > 0 && may_rest(state, now);
    next_keep_ = now + settings_.lease() / settings_.keeps_per_lease;
    rested_ = rested_ || rests;
    if (!rests) keep(state, now);
  }
  for (auto& [name, use] : uses_) balance(state, name, use, now);
  drain(state, now);
  for (const Expire& expire : lease_ends_.propose(state, id_, now)) send(now, expire);
  if (const auto at = lease_ends_.next()) wake_at(*at);
  wake_at(next_keep_);
}

/// It follows the log as no member.
void Member::retire(Micros now) {
  send(now, Left{});
  begin_life();
  was_.clear();
}

void Member::join(const State& state, Micros now) {
  join_sent_ = true;
  if (epoch_ == 0) epoch_ = 1;
  Joined about = settings_.about;
  about.was = was_;
  if (state.part > 0) about.division = state.division;
  about.part = state.part;
  send(now, std::move(about));
  if (phase_ == Phase::joined) next_keep_ = 0;
}

/// What it has said before is known to all, and nothing would return if it ended.
bool Member::may_rest(const State& state, Micros now) const {
  const Micros between = settings_.lease() / settings_.keeps_per_lease;
  if (now >= kept_at_ + kRestLeases * between || renewed_at_ == 0 || !unread_.empty()) return false;
  const bool is_idle = std::all_of(uses_.begin(), uses_.end(), [](const auto& of) {
    const LimiterUse& use = of.second;
    return (use.known || use.refused) && !use.is_going() && !use.closing && use.held() == 0 && use.demand.wants == 0 &&
           use.demand.busy == 0 && use.said.wants == 0;
  });
  return is_idle && rests(state, id_) && know_rest(state) && !state.members.at(id_).draining;
}

void Member::keep(const State& state, Micros now) {
  kept_at_ = now;
  Keep keep;
  // An event that was not read back yet may change what the state shows.
  const bool is_known = unread_.empty();
  for (auto& [name, use] : uses_) {
    if (use.closing || use.letting_go) continue;
    Line line = use.report(name, std::max(use.peak, use.demand.wants));
    if (!is_known || !shows(state, id_, line)) keep.lines.push_back(std::move(line));
  }
  keep.checkpoint = checkpoints_.take_unsent();
  send(now, std::move(keep));
  // Repeats events that may have been lost. First, that nothing runs any more.
  if (repeats_drained()) drained_said_ = false;
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
    LimiterUse& use = uses_[name];
    use.closing = use.known = true;
    let_go(name, use, now);
  }
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

/// Other members claimed all partitions of this member. It reports when nothing runs any more under permits that a
/// fence returns.
void Member::drain(const State& state, Micros now) {
  const auto self = state.members.find(id_);
  if (self == state.members.end() || !self->second.draining) {
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

// --- outputs ---------------------------------------------------------------------------------------------------------

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
  rested_ = false;
  drained_said_ = false;
  lease_ends_.clear();
  to_revoke_.clear();
  for (auto& [partition, owned] : partitions_) owned.said = false;
  std::erase_if(uses_, [](const auto& of) { return of.second.closing; });
  for (auto& [name, use] : uses_) start_over(name, use);
  next_tick_ = 0;
}

void Member::send(Micros now, decltype(Event::body) body) {
  for (Body& piece : in_records(std::move(body))) {
    events_.push_back({.member = id_, .epoch = epoch_, .seq = ++seq_, .body = std::move(piece)});
    unread_.push_back({.event = events_.back(), .at = now});
  }
}

std::vector<Event> Member::take_events() { return std::exchange(events_, {}); }
std::vector<Order> Member::take_orders() { return std::exchange(orders_, {}); }

Micros Member::heard_until() const {
  if (!rested_ || phase_ != Phase::joined || renewed_at_ == 0) return open_until();
  const Micros margin = margin_of(settings_);
  if (!unread_.empty()) return unread_.front().at + settings_.lease() - margin;
  return renewed_at_ + kRestLeases * settings_.lease() - margin;
}

Micros Member::open_until() const {
  if (phase_ != Phase::joined || renewed_at_ == 0) return 0;
  return renewed_at_ + settings_.lease() - margin_of(settings_);
}

bool Member::is_catching_up(Micros now) const {
  return phase_ == Phase::joined && renewed_at_ == 0 && now < trusted_from_ + settings_.lease();
}

}  // namespace turnstile::tokens
