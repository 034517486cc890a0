#pragma once
// A worker thread: it takes units from the scheduler, and runs them.

#include <vector>

#include "delivery/run_state.hpp"
#include "engine/lane_state.hpp"

namespace turnstile::ports {
class Store;
}

namespace turnstile::detail {

class Scheduler;

/// The work of a worker: messages of one lane.
struct LaneUnit {
  LanePtr lane;
  std::vector<Work> works;
  Permit permit;
  bool look_up = false;    ///< no permit: only checks whether the messages are settled already
  bool unclaimed = false;  ///< PostgreSQL is unavailable, and the topic continues without it
  bool alone = false;      ///< nothing else runs until it has ended
};

/// A worker thread, as other threads see it.
struct WorkerSlot {
  RunState watch;
  // The scheduler's lock protects:
  LanePtr lane;  ///< its current lane
  SteadyTime since{};
};

/// The loop of a worker thread, until the scheduler ends it. `store`: null if no topic needs it.
void work(Scheduler& scheduler, WorkerSlot& slot, ports::Store* store);

}  // namespace turnstile::detail
