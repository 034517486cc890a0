#pragma once
// A topic of a consumer: how its messages run, its limiter, and what the scheduler knows of its handler.

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "delivery/topic_runner.hpp"
#include "engine/unit_cost.hpp"
#include "turnstile/ports/limiter.hpp"
#include "turnstile/ports/partitions.hpp"

namespace turnstile::detail {

/// A permit that was waited for.
struct DeliveredPermit {
  Permit permit;
  std::chrono::steady_clock::time_point asked_at, delivered_at;
};

/// A topic in this process.
struct TopicState {
  TopicState(TopicPlan plan, Pipeline pipeline, HandlerId handler, TopicRunner::Services services,
             std::shared_ptr<ports::Limiter> limit)
      : runner(std::move(plan), std::move(pipeline), handler, std::move(services)), limiter(std::move(limit)) {}

  /// Tells the observers that a permit was waited for.
  void tell_of_permit(std::chrono::nanoseconds waited) const {
    const TopicPlan& plan = runner.plan();
    runner.services().observers.tell(&Observer::on_permit, PermitReport{plan.topic, plan.limiter, waited});
  }

  TopicRunner runner;
  std::shared_ptr<ports::Limiter> limiter;  ///< null: only the number of workers limits the topic
  // The scheduler's lock protects:
  std::size_t asked = 0;                   ///< permits that were requested and not delivered yet
  std::vector<DeliveredPermit> delivered;  ///< and not used yet, in the order of their delivery
  double mean_ns = 0;                      ///< moving average of a message's time in a worker; 0: not known yet
  UnitCost cost;                           ///< of its units
  // Moving averages of mode transactional; 0: not known yet.
  double handler_ns = 0;       ///< of a message's time in its handler
  double transaction_ns = 0;   ///< of a transaction's own statements, with COMMIT
  double commit_ns = 0;        ///< of which COMMIT, with the statements that go out with it
  std::int64_t unclaimed = 0;  ///< messages that ran unclaimed since the outage began
  [[nodiscard]] bool needs_store() const noexcept { return runner.plan().mode != Mode::at_least_once; }
  /// Up to where the handler has done the partition's records in mode by_offset or numbered, if it has another mode now.
  /// They have no ids, so they must not be read again. Absent: there are none.
  [[nodiscard]] std::optional<Offset> done_without_ids(const ports::PartitionClaim& claim) const {
    return numbers_records(runner.plan().mode) ? std::nullopt : claim.progress_of(runner.handler());
  }
  [[nodiscard]] bool fails_open() const noexcept { return runner.plan().store_down == StoreDownPolicy::run; }
};

}  // namespace turnstile::detail
