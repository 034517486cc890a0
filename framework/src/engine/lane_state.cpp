#include "engine/lane_state.hpp"

#include <algorithm>

namespace turnstile::detail {

std::vector<TopicPartition> partitions_of(const std::vector<LanePtr>& lanes) {
  std::vector<TopicPartition> partitions;
  for (const auto& lane : lanes) partitions.push_back(lane->place.at);
  return partitions;
}

bool LaneState::may_have_unread() const {
  if (phase != Phase::open) return false;
  if (!end.why_unknown.empty()) return true;
  const auto next = lane.position() ? lane.position() : start;
  return end.offsets && next && *next < end.offsets->last;
}

std::int64_t LaneState::hidden() const {
  const auto next = lane.position() ? lane.position() : start;
  return end.offsets && next && *next >= end.offsets->readable ? std::max<std::int64_t>(end.offsets->last - *next, 0)
                                                               : 0;
}

bool LaneState::is_held() const {
  if (phase != Phase::open) return false;
  const HandlerBreaker* const breaker = topic.runner.breaker();
  const bool nothing_starts = paused || (breaker != nullptr && !breaker->is_closed());
  return (nothing_starts && lane.running() == 0) || lane.is_oldest_paused();
}

void LaneState::look_at(const Pauses& pauses) {
  paused = pauses.hold(place.at);
  waits_for_pauses = pauses.unknown && topic.needs_store() && !topic.fails_open();
  lane.pause_keys(pauses.keys_in(place.at));
}

std::size_t LaneState::most_unsettled(const Window& limits) const noexcept { return std::min(window, limits.messages); }

bool LaneState::is_dry(SteadyTime now) const {
  const bool waits_for_its_unit = topic.runner.plan().order == Order::partition && lane.running() > 0;
  return !waits_for_its_unit && !lane.ready(now);
}

/// At least a quarter of the window: each take costs a lock, so taking records one by one would be expensive.
bool LaneState::has_room(const Window& limits, SteadyTime now) const {
  const std::size_t most = most_unsettled(limits);
  const auto is_free = [&](std::size_t messages, std::size_t bytes) {
    return lane.unsettled() + messages <= most && lane.bytes() + bytes <= limits.bytes;
  };
  return is_free(std::max<std::size_t>(most / 4, 1), limits.bytes / 4) || (is_free(1, 1) && is_dry(now));
}

void LaneState::widen_if_dry(const Window& limits, SteadyTime now) {
  if (!was_full || window >= limits.messages || !is_dry(now)) return;
  window *= 2;
  was_full = false;
}

LaneState::Before what_was_settled(const LaneState& lane) {
  LaneState::Before before;
  before.settled.below = lane.lane.taken_up_to().value_or(lane.start.value_or(0));
  before.settled.except = lane.lane.open_offsets();
  if (lane.place.in_doubt) before.settled.add(*lane.place.in_doubt);  // it was reading again itself
  if (lane.before) before.first = lane.before->first;
  else if (!lane.start) before.first = lane.lane.first();
  return before;
}

std::optional<SteadyTime> arrival_of(const LaneState& lane, Offset offset) {
  for (const auto& [last, at] : lane.arrivals) {
    if (offset <= last) return at;
  }
  return std::nullopt;
}

}  // namespace turnstile::detail
