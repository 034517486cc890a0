#pragma once
// Two threads for timed work. One writes watermarks outside of the handlers' transactions, which would queue for those
// rows. It also claims partitions that could not be claimed at their assignment.
// The other is the watchdog: it cancels handlers that run too long, returns permits that no worker uses, and reports
// which message blocks a partition. It never waits for the store, so that it also reports while the store hangs. The
// purger and the PauseKeeper run beside them.

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "engine/pause_keeper.hpp"
#include "engine/scheduler.hpp"
#include "inbox/purger.hpp"
#include "support/observers.hpp"
#include "support/periodic_thread.hpp"

namespace turnstile::detail {

class PartitionKeeper {
 public:
  struct Settings {
    std::string group;
    std::chrono::milliseconds stall_after{60'000};
    std::chrono::milliseconds lock_timeout{5'000};
    std::chrono::milliseconds flush_interval{1'000};
    std::shared_ptr<ports::Limiters> limiters{};                ///< may be null
    bool purge = true;                                          ///< whether this process takes part in deleting old ids
    std::vector<std::shared_ptr<HandlerRetention>> retained{};  ///< of the handlers that store ids
    std::shared_ptr<ports::Producers> producers{};              ///< null unless producers number their requests
    Observers observers{};                                      ///< those of all topics
    PauseKeeper::Settings pauses{};
  };
  /// Calls for the polling thread. They are made on the keeper's thread, or the thread of flush().
  struct Calls {
    std::function<void(LanePtr, ports::PartitionClaim)> claimed;  ///< a claim succeeded late: admit the lane
  };
  PartitionKeeper(Settings settings, Scheduler& scheduler, std::shared_ptr<ports::Store> store,
                  std::shared_ptr<const RunLog> run_log, Calls calls);
  ~PartitionKeeper();
  PartitionKeeper(const PartitionKeeper&) = delete;
  PartitionKeeper& operator=(const PartitionKeeper&) = delete;

  /// Writes the watermarks of these lanes now, on the caller's thread. A failure only makes the watermarks lag. It does
  /// nothing while the store is known to be unavailable, because its caller would wait in vain.
  void flush(std::span<const LanePtr> lanes) {
    if (scheduler_.store_available()) flush(lanes, false);
  }
  /// Waits for a claim in progress of one of these lanes: after their release, the claim would fence their next owner.
  /// No claim begins for lanes that are neither claiming nor fenced.
  void await_claims(std::span<const LanePtr> lanes);
  /// Waits for watermarks that are being written. A watermark of an old log must not be written after its new log has
  /// begun under the same fence.
  void await_flush() { const std::lock_guard lock(flushing_); }
  void stop();

 private:
  void flush(std::span<const LanePtr> lanes, bool unmoved_too);
  void keep_partitions();
  void tell_of_store();
  void watch_handlers();
  void watch_progress(SteadyTime now);
  void claim_late(SteadyTime now);
  void hurry_after_failover(SteadyTime now);

  const Settings settings_;
  Scheduler& scheduler_;
  std::shared_ptr<ports::Store> store_;
  std::shared_ptr<const RunLog> run_log_;
  const Calls calls_;
  // Used only by thread_:
  SteadyTime next_flush_, next_look_back_;
  SteadyTime next_history_{};  ///< when to ask for the store's history, if a lane is fenced

  std::mutex flushing_;  ///< during flush()
  std::mutex mutex_;
  std::condition_variable claimed_;
  LanePtr claiming_;  ///< the lane whose claim is in progress; protected by mutex_
  PeriodicThread thread_, watchdog_;
  std::unique_ptr<PauseKeeper> pauses_;  ///< null without a store
  std::unique_ptr<Purger> purger_;       ///< null without handlers that store ids
};

}  // namespace turnstile::detail
