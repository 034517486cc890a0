#pragma once
// The trials of handlers that outlast their partitions (ports/trials.hpp). As long as such a handler runs and its
// process lives, the next owners of the partition must not count it as dead. So a thread of its own renews the trials:
// every other thread that uses the store may wait for locks of other members.

#include <chrono>
#include <memory>
#include <mutex>
#include <vector>

#include "delivery/recorded_trials.hpp"
#include "engine/scheduler.hpp"
#include "support/periodic_thread.hpp"
#include "turnstile/ports/trials.hpp"

namespace turnstile::detail {

class OutlastingTrials {
 public:
  /// `recorded`: those of the topics, whose ends it retries; may be null.
  OutlastingTrials(Scheduler& scheduler, std::shared_ptr<ports::Trials> trials,
                   std::shared_ptr<RecordedTrials> recorded, std::shared_ptr<const RunLog> run_log);
  ~OutlastingTrials();
  OutlastingTrials(const OutlastingTrials&) = delete;
  OutlastingTrials& operator=(const OutlastingTrials&) = delete;

  /// A handler of this lane still runs at its release. Returns how long its trials last if nobody renews them. The
  /// caller holds the scheduler's lock.
  std::chrono::milliseconds add(const LanePtr& lane, const Fence& fence);
  /// The process ends by itself, so no message has killed it, and none of those that still run in `lanes`. Nothing is
  /// renewed from now on.
  void end(const std::vector<LanePtr>& lanes);
  /// Tries the ends that are kept once more. It may wait for a connection that a handler holds.
  void retry_ends();

 private:
  struct Outlasting {
    LanePtr lane;
    Fence fence;
    std::chrono::milliseconds runs_for{};
    SteadyTime renew_at{};  ///< at first at once: the release itself may have failed
    bool has_ended = false;
  };
  PeriodicThread::Time renew();
  bool release(const std::vector<ports::Trials::Release>& trials);

  Scheduler& scheduler_;
  const std::shared_ptr<ports::Trials> trials_;
  const std::shared_ptr<RecordedTrials> recorded_;
  const std::shared_ptr<const RunLog> run_log_;
  bool failed_ = false;   ///< the last release(), which is reported once; protected by releasing_
  std::mutex releasing_;  ///< during a call of the store, so that no renewal follows end()
  std::mutex mutex_;      ///< protects outlasting_; locked after the scheduler's lock
  std::vector<Outlasting> outlasting_;
  PeriodicThread thread_;   ///< runs from the first add() on
  PeriodicThread retries_;  ///< of the ends that are kept; it must not delay renewals
};

}  // namespace turnstile::detail
