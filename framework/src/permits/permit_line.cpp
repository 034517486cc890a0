#include "permits/permit_line.hpp"

#include <algorithm>
#include <utility>

namespace turnstile::detail {

namespace {

/// The largest lead, in permits, of a party that returns after it did not wait for a while.
constexpr std::uint64_t kMostAhead = 4;

}  // namespace

PermitLine::Party PermitLine::add_party(bool outlives_fence) {
  const Party party = (last_party_ / 2 + 1) * 2 + (outlives_fence ? 1 : 0);
  last_party_ = party;
  queues_[party].served = served_;
  return party;
}

std::uint64_t PermitLine::add(Waiter waiter, Party party) {
  const std::uint64_t number = waiter.number = ++last_waiter_;
  Queue& queue = queues_[party];
  Line& line = waiter.urgent ? queue.urgent : queue.normal;
  line.push_back(std::move(waiter));
  return number;
}

PermitLine::Place PermitLine::find(std::uint64_t waiter) {
  for (auto& [party, queue] : queues_) {
    for (Line* line : {&queue.urgent, &queue.normal}) {
      const auto at = std::find_if(line->begin(), line->end(), [&](const Waiter& w) { return w.number == waiter; });
      if (at != line->end()) return {.party = party, .queue = &queue, .line = line, .at = at};
    }
  }
  return {};
}

std::uint64_t PermitLine::turn_of(const Queue& queue) const {
  return std::max(queue.served, served_ - std::min(served_, kMostAhead));
}

PermitLine::Place PermitLine::next_served(Count most, bool admits_outliving) {
  Place best;
  for (const bool urgent : {true, false}) {
    for (auto& [party, queue] : queues_) {
      if (outlives_fence(party) && !admits_outliving) continue;
      Line& line = urgent ? queue.urgent : queue.normal;
      const auto at =
          std::find_if(line.begin(), line.end(), [&](const Waiter& w) { return w.count <= std::max<Count>(most, 1); });
      if (at == line.end()) continue;
      if (best && !urgent && turn_of(*best.queue) < turn_of(queue)) continue;
      if (best && (urgent || turn_of(*best.queue) == turn_of(queue)) && best.at->number < at->number) continue;
      best = {.party = party, .queue = &queue, .line = &line, .at = at};
    }
    if (best) break;
  }
  return best;
}

void PermitLine::count_as_served(const Place& place) {
  if (place.at->urgent) return;
  served_ = std::max(served_, turn_of(*place.queue));
  place.queue->served = turn_of(*place.queue) + place.at->count;
}

PermitLine::Waiter PermitLine::remove(const Place& place) {
  Waiter waiter = std::move(*place.at);
  place.line->erase(place.at);
  return waiter;
}

}  // namespace turnstile::detail
