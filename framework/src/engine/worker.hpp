#pragma once
// A worker thread: it takes units from the scheduler, and runs them.

#include <algorithm>
#include <chrono>
#include <optional>
#include <vector>

#include "delivery/run_state.hpp"
#include "engine/lane_state.hpp"

namespace turnstile::ports {
class Store;
}

namespace turnstile::detail {

class Scheduler;

/// Messages of one lane.
struct LaneWork {
  LanePtr lane;
  std::vector<Work> works;
  std::optional<SteadyTime> received_at{};  ///< when its first message arrived; only for traces
};

/// The work of a worker: messages of one lane, and of others of the same topic that share its transaction.
struct LaneUnit {
  LanePtr lane;
  std::vector<Work> works;
  std::vector<LaneWork> others;
  std::size_t settled = 0;  ///< how many of the first works are settled already, while it runs
  Permit permit;
  std::optional<std::chrono::nanoseconds> waited{};  ///< for the permit, if it was not there at once
  std::optional<SteadyTime> received_at{};           ///< when its first message arrived; only for traces
  /// Of a look-up, which has no permit, and only checks whether the messages are settled already: the lane's place, which
  /// may change before it ends.
  std::optional<OwnedPartition> looks_up{};
  bool unclaimed = false;  ///< PostgreSQL is unavailable, and the topic continues without it
  bool probes = false;     ///< a probe of the topic's circuit breaker
  bool alone = false;      ///< nothing else starts until it has ended, or is left behind
  bool counts = false;     ///< alone, and nothing else runs: if the process dies, this message has killed it
};

/// A worker thread, as other threads see it.
struct WorkerSlot {
  RunState watch;
  // The scheduler's lock protects:
  std::vector<LanePtr> lanes;  ///< those that it works on
  SteadyTime since{};
  bool counts = false;  ///< of its unit
  /// Whether its handler ignores that it should have ended: its partitions are gone, or its time is over, and the grace.
  [[nodiscard]] bool is_left_behind(SteadyTime now) const;
  [[nodiscard]] bool works_on(const LaneState& lane) const {
    return std::any_of(lanes.begin(), lanes.end(), [&](const LanePtr& one) { return one.get() == &lane; });
  }
};

/// The work of a worker, as the scheduler knew it.
struct WorkerAtWork {
  std::vector<LanePtr> lanes;  ///< empty: it waits
  RunState* watch;
};

/// The loop of a worker thread, until the scheduler ends it. `store`: null if no topic needs it.
void work(Scheduler& scheduler, WorkerSlot& slot, ports::Store* store);

}  // namespace turnstile::detail
