#include "tests/simulation/checks.hpp"

#include "tests/simulation/describe.hpp"
#include "tokens/snapshot.hpp"

namespace turnstile::simulation {

using namespace tokens;
using EventOutcome = Effects::Outcome;

const Effects& Checks::written(Position position, const Event& event) {
  const auto* claimed = std::get_if<PartitionsClaimed>(&event.body);
  const auto key = std::tuple{event.member, event.epoch, event.seq};
  const bool again = counted_.contains(key);
  const State before = again || claimed != nullptr ? state_ : State{};
  const Position limits_set_at = state_.limits_set_at;
  std::map<std::string, Count> held_before, taken_before;
  for (const auto& [name, limiter] : state_.limiters) {
    held_before[name] = limiter.held();
    taken_before[name] = limiter.held() + limiter.reserved;
  }

  effects_ = apply(state_, position, event);
  const bool speaks_for_a_member =
      !std::holds_alternative<LimitSet>(event.body) && !std::holds_alternative<VersionSet>(event.body);
  if (effects_.outcome == EventOutcome::applied && speaks_for_a_member) counted_.insert(key);

  capacity_holds(held_before);
  reserve_fits(taken_before);
  if (again) duplicate_changed_nothing(before, event);
  if (claimed != nullptr) void_claims_changed_nothing(before, event);
  limit_change_was_due(event, limits_set_at);
  ended_stay_ended(effects_);
  if (is_compared(position)) digests_.push_back(digest(state_));
  if (position % 64 == 0 || !effects_.drained.empty()) snapshot_is_the_state();
  count_marks(event);
  return effects_;
}

/// Invariant 2: held permits never exceed the limit, less the part that is set aside. If the limit was lowered below
/// them, they never increase.
void Checks::capacity_holds(const std::map<std::string, Count>& held_before) const {
  for (const auto& [name, limiter] : state_.limiters) {
    const Count held = limiter.held();
    const auto before = held_before.find(name);
    if (held <= limiter.shared() || (before != held_before.end() && held <= before->second)) continue;
    throw Broken("limiter " + name + " has the limit " + std::to_string(limiter.limit()) + " and shares " +
                 std::to_string(limiter.shared()) + ", but " + std::to_string(held) + " permits are held at position " +
                 std::to_string(state_.last));
  }
}

/// No other process uses reserved permits, whether or not their member lives.
void Checks::reserve_fits(const std::map<std::string, Count>& taken_before) const {
  for (const auto& [name, limiter] : state_.limiters) {
    const Count taken = limiter.held() + limiter.reserved;
    const auto before = taken_before.find(name);
    if (taken <= limiter.limit() || (before != taken_before.end() && taken <= before->second)) continue;
    throw Broken("limiter " + name + " has the limit " + std::to_string(limiter.limit()) + ", but " +
                 std::to_string(limiter.held()) + " permits are held and " + std::to_string(limiter.reserved) +
                 " reserved at position " + std::to_string(state_.last));
  }
}

/// A reader that starts from a snapshot reaches the same state as a reader of the whole log. Rare states matter here,
/// and few processes happen to start from one.
void Checks::snapshot_is_the_state() const {
  if (restore(save(state_)) != state_)
    throw Broken("the snapshot of position " + std::to_string(state_.last) + " is read as another state");
}

/// Invariant 3.
void Checks::duplicate_changed_nothing(const State& before, const Event& event) const {
  State expected = before;
  expected.last = state_.last;
  ++expected.ignored;
  if (effects_.outcome == EventOutcome::unknown) ++expected.unknown;
  if (expected != state_) throw Broken("a second copy changed the state: " + describe(event));
}

/// Invariant 4. With a fence the database has decided the order, without one the log decides. A claim that does not
/// name the claim before it was made without knowing that claim.
void Checks::void_claims_changed_nothing(const State& before, const Event& event) const {
  for (const auto& claim : std::get<PartitionsClaimed>(event.body).claims) {
    const auto known = before.partitions.find(claim.partition);
    if (known == before.partitions.end()) continue;
    const PartitionEntry& entry = known->second;
    const bool is_void = claim.fence == 0 ? claim.previous != entry.claimed_at
                                          : claim.fence < entry.fence ||
                                                (claim.fence == entry.fence && before.members.contains(entry.owner));
    if (!is_void) continue;
    ++marks_[static_cast<std::size_t>(Mark::claim_void)];
    const auto after = state_.partitions.find(claim.partition);
    if (after == state_.partitions.end() || after->second != entry)
      throw Broken("a claim that was void took a partition from its owner: " + describe(event));
  }
}

void Checks::limit_change_was_due(const Event& event, Position set_before) const {
  const auto* change = std::get_if<LimitSet>(&event.body);
  if (change == nullptr || change->seen >= set_before) return;
  ++marks_[static_cast<std::size_t>(Mark::limit_raced)];
  if (effects_.outcome == EventOutcome::applied)
    throw Broken("a limit was set by who had not seen the last change: " + describe(event));
}

void Checks::ended_stay_ended(const Effects& effects) {
  if (effects.ended) ended_.insert(*effects.ended);
  for (const auto& [id, member] : state_.members) {
    if (ended_.contains(id)) throw Broken("member " + std::to_string(id) + " ended, and is there again");
  }
}

void Checks::reached(Position position, const State& state) const {
  if (digest(state) != digests_.at(static_cast<std::size_t>(position / 8)))
    throw Broken("a process has come to another state at position " + std::to_string(position));
}

void Checks::count_marks(const Event& event) {
  const auto mark = [&](Mark which) { ++marks_[static_cast<std::size_t>(which)]; };
  switch (effects_.outcome) {
    case EventOutcome::applied: break;
    case EventOutcome::unknown: mark(Mark::unknown); break;
    case EventOutcome::duplicate: mark(Mark::duplicate); break;
    case EventOutcome::old_epoch: mark(Mark::old_epoch); break;
    case EventOutcome::stranger: mark(Mark::stranger); break;
    case EventOutcome::revived: mark(Mark::revived); break;
    case EventOutcome::stale: mark(Mark::stale); break;
    case EventOutcome::not_allowed: mark(Mark::not_allowed); break;
    case EventOutcome::elsewhere: break;  // this log is not divided
  }
  const bool applied = effects_.outcome == EventOutcome::applied;
  if (std::holds_alternative<VersionSet>(event.body)) mark(applied ? Mark::version_switched : Mark::version_refused);
  if (applied && std::holds_alternative<Joined>(event.body) && event.epoch > 1) mark(Mark::new_epoch);
  if (const auto* expire = std::get_if<Expire>(&event.body); applied && expire != nullptr)
    mark(expire->reserve ? Mark::reserve_over : Mark::expired);
  if (applied && std::holds_alternative<Left>(event.body)) mark(Mark::left);
  if (applied && std::holds_alternative<Drained>(event.body)) mark(Mark::said_drained);
  if (const auto* release = std::get_if<Release>(&event.body); applied && release != nullptr && release->line.turn_over)
    mark(Mark::turn_over);
  if (!effects_.drained.empty()) mark(Mark::drained);
  for (const MemberId id : effects_.drained) {
    if (!state_.members.at(id).unfenced.empty()) mark(Mark::unfenced);
  }
  if (std::holds_alternative<PartitionsClaimed>(event.body)) {
    for (const MemberId id : effects_.reclaimed) {
      mark(Mark::fenced);
      for (const auto& [name, limiter] : state_.limiters) {
        if (limiter.strict() && state_.held(name, id) > 0) mark(Mark::strict_kept);
      }
    }
  }
  for (const auto& [name, limiter] : state_.limiters) {
    if (limiter.starved) mark(Mark::starved);
    if (limiter.held() > limiter.shared()) mark(Mark::over_lowered_limit);
  }
}

}  // namespace turnstile::simulation
