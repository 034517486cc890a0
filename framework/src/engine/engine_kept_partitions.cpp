// Partitions that stay in this process in a rebalance while the store is unavailable. The assignor is eager, so they are
// revoked and assigned again, and the store cannot be asked for new claims of them.

#include <algorithm>

#include "engine/engine.hpp"
#include "engine/engine_shared.hpp"
#include "turnstile/error.hpp"

namespace turnstile::detail {

/// Remembers the claims of the partitions that could go on without the store.
void Engine::release_in_rebalance(const std::vector<LanePtr>& lanes, bool lost) {
  std::vector<LanePtr> kept;
  shared_->scheduler.locked([&] {
    for (const auto& lane : lanes) {
      const bool is_claimed = lane->phase == LaneState::Phase::open && lane->place.fence && !lane->replaced;
      if (is_claimed && lane->topic.fails_open() && !lost) kept.push_back(lane);
    }
  });
  release(lanes, lost);
  shared_->scheduler.locked([&] {
    for (const auto& lane : lanes) kept_.erase(lane->place.at);
    for (const auto& lane : kept) {
      if (lane->lane.running() == 0) kept_.insert_or_assign(lane->place.at, lane->place);
    }
  });
}

/// The store is unavailable. In a topic that continues without it, a partition that this process has released in this
/// rebalance goes on under its last claim. What runs unclaimed needs no claim, and if another process has claimed the
/// partition meanwhile, the store refuses what runs once it answers. A partition whose last owner was another process
/// waits: the store knows which of its messages had begun. So does one whose log may be another one.
/// No limiter learns of the claim: nothing rejects the effects of what runs unclaimed, so its permits end with the lease.
void Engine::go_on_without_store(const std::vector<LanePtr>& lanes, KafkaAnswers& kafka) {
  for (const auto& lane : lanes) {
    const auto kept = kept_.find(lane->place.at);
    const bool waits = shared_->scheduler.locked([&] { return lane->phase == LaneState::Phase::claiming; });
    if (kept == kept_.end() || !waits) continue;
    const OwnedPartition& place = kept->second;
    try {
      if (logs_.incarnation(place.at) != place.incarnation) continue;
      const auto known = what_is_known(place.at, {}, kafka);
      const auto verdict = logs_.judge(place.at, known);
      if (verdict.kind != LogIdentity::Verdict::Kind::same || verdict.from) continue;
    } catch (const BrokerError& e) {
      run_log_->info(place.at,
                     std::string("waits for PostgreSQL, because Kafka did not tell where it goes on: ") + e.what());
      continue;
    }
    logs_.claimed_under(place.at, *place.fence);
    shared_->scheduler.admit(*lane, place);
    run_log_->info(place.at, "stays in this process, and goes on without PostgreSQL (store_down is run)");
    tell_assigned(*lane, place.fence->epoch);
  }
}

}  // namespace turnstile::detail
