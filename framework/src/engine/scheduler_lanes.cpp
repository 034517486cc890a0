// The lanes of the scheduler are opened, fed, drained and closed.

#include <algorithm>

#include "engine/scheduler.hpp"

namespace turnstile::detail {

namespace {

using std::chrono::steady_clock;

/// How many messages of a partition are taken when nothing is known of their size.
constexpr std::size_t kFirstTake = 16;

}  // namespace

void Scheduler::open(LanePtr lane) {
  const std::lock_guard lock(mutex_);
  lane->moved_at = steady_clock::now();
  lane->look_at(pauses_);
  lanes_.push_back(std::move(lane));
}

std::vector<LanePtr> Scheduler::lanes() const {
  const std::lock_guard lock(mutex_);
  return lanes_;
}

std::size_t Scheduler::room(LaneState& lane) {
  const std::lock_guard lock(mutex_);
  if (!lane.may_start()) return 0;  // its records stay in Kafka's client, which stops fetching when its queue is full
  const SteadyTime now = steady_clock::now();
  if (!lane.has_room(window_, now)) {
    lane.was_full = true;
    lane.widen_if_dry(window_, now);
    if (!lane.has_room(window_, now)) {
      lane.wants_feed = true;
      return 0;
    }
  }
  const std::size_t count = lane.most_unsettled(window_) - lane.lane.unsettled();
  const std::size_t mean = lane.lane.mean_bytes();
  if (mean == 0) return std::min(count, kFirstTake);
  return std::clamp<std::size_t>((window_.bytes - lane.lane.bytes()) / mean, 1, count);
}

void Scheduler::pass(LaneState& lane, Offset offset) {
  const std::lock_guard lock(mutex_);
  lane.lane.pass(offset);
}

namespace {

void note_arrival(LaneState& lane, const ports::Block& block) {
  auto& arrivals = lane.arrivals;
  while (!arrivals.empty() && arrivals.front().first < lane.lane.position().value_or(0)) arrivals.pop_front();
  if (!block.messages().empty()) arrivals.emplace_back(block.messages().back().offset(), steady_clock::now());
}

}  // namespace

void Scheduler::feed(LaneState& lane, std::unique_ptr<ports::Block> block) {
  std::vector<std::unique_ptr<ports::Block>> spent;
  const std::size_t header_bytes = lane.header_sizes.of(block->messages());
  const std::lock_guard lock(mutex_);
  if (lane.lane.unsettled() == 0) {
    lane.moved_at = steady_clock::now();
    lane.stalled_for = {};
  }
  if (lane.topic.runner.services().tracer) note_arrival(lane, *block);
  lane.lane.add(std::move(block), header_bytes);
  spent = lane.lane.take_spent();
  // While its order lets none of them start, the worker that ends the one before looks for the next.
  if (lane.topic.limiter || lane.lane.ready(steady_clock::now())) idle_workers_.wake_for_records();
}

bool Scheduler::drain(std::span<const LanePtr> lanes, SteadyTime deadline, const std::function<bool()>& give_up) {
  std::unique_lock lock(mutex_);
  for (const auto& lane : lanes) lane->phase = LaneState::Phase::draining;
  want_no_quiet(lanes);
  const auto idle = [&] {
    return std::all_of(lanes.begin(), lanes.end(), [](const auto& lane) { return lane->lane.running() == 0; });
  };
  while (!idle()) {
    const auto now = steady_clock::now();
    if (now >= deadline || give_up()) return false;
    idle_.wait_until(lock, std::min(deadline, now + std::chrono::milliseconds(50)));
  }
  return true;
}

void Scheduler::cancel(std::span<const LanePtr> lanes) {
  std::vector<std::stop_source> stops;
  {
    const std::lock_guard lock(mutex_);
    for (WorkerSlot& slot : slots_) {
      if (std::any_of(lanes.begin(), lanes.end(), [&](const LanePtr& lane) { return slot.works_on(*lane); }))
        stops.push_back(slot.watch.cancel());
    }
  }
  for (std::stop_source& stop : stops) stop.request_stop();
}

void Scheduler::close(std::span<const LanePtr> lanes) {
  const std::lock_guard lock(mutex_);
  for (const auto& lane : lanes) {
    lane->phase = LaneState::Phase::gone;
    lane->wants_feed = false;
    std::erase(lanes_, lane);
  }
  want_no_quiet(lanes);
}

void Scheduler::admit(LaneState& lane, const OwnedPartition& place) {
  const std::lock_guard lock(mutex_);
  if (lane.phase != LaneState::Phase::claiming && lane.phase != LaneState::Phase::fenced) return;
  lane.place = place;
  lane.lane.single_out(place.suspicion ? place.suspicion->suspects : std::map<Offset, int>{});
  lane.phase = LaneState::Phase::open;
  lane.moved_at = steady_clock::now();
  lane.stalled_for = {};
  idle_workers_.wake_all();
}

void Scheduler::set_pauses(Pauses pauses, bool breaks) {
  {
    const std::lock_guard lock(mutex_);
    if (!breaks && pauses.is_same(pauses_)) return;
    pauses_ = std::move(pauses);
    for (const auto& lane : lanes_) lane->look_at(pauses_);
    idle_workers_.wake_all();
  }
  room_again_();  // lanes that are no longer paused take the records that wait
}

}  // namespace turnstile::detail
