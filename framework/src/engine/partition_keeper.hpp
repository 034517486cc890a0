#pragma once
// Two threads that look after time. One writes watermarks on the side (each handler's transaction would queue for their rows), and claims
// partitions that could not be claimed at their assignment. The other is the watchdog: it cancels handlers that run too long, and says which message holds a
// partition; it never waits for the store, so that it also speaks while that hangs. Beside them works the purger.

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/scheduler.hpp"
#include "inbox/purger.hpp"

namespace turnstile {

class PartitionKeeper {
 public:
  struct Settings {
    std::string group;
    std::chrono::milliseconds stall_after{60'000};
    std::chrono::milliseconds lock_timeout{5'000};
    std::chrono::milliseconds flush_interval{1'000};
    std::shared_ptr<Limiters> limiters{};                ///< may be null
    bool purge = true;                                   ///< this process takes its turn at deleting old ids
    std::vector<std::shared_ptr<Retention>> retained{};  ///< of the handlers that keep ids
    std::shared_ptr<Producers> producers{};              ///< null unless producers number their requests
  };
  /// What the polling thread is to do; called on the keeper's thread, or flush()'s.
  struct Calls {
    std::function<void(LanePtr, PartitionClaim)> claimed;  ///< a claim came late: admit the lane
  };
  PartitionKeeper(Settings settings, Scheduler& scheduler, std::shared_ptr<InboxStore> store,
                  std::shared_ptr<const RunLog> run_log, Calls calls);
  ~PartitionKeeper();
  PartitionKeeper(const PartitionKeeper&) = delete;
  PartitionKeeper& operator=(const PartitionKeeper&) = delete;

  /// Writes the watermarks of these now, on the caller's thread; a failure is nothing but a watermark that lags. Not while the store is known
  /// to be unavailable: its caller would wait for nothing.
  void flush(std::span<const LanePtr> lanes) {
    if (scheduler_.store_available()) flush(lanes, false);
  }
  /// Waits for a claim of one of these that is under way: once they are let go, it would fence their next owner. None is begun for lanes
  /// that are no longer claiming or fenced.
  void await_claims(std::span<const LanePtr> lanes);
  void stop();

 private:
  void flush(std::span<const LanePtr> lanes, bool unmoved_too);
  void run();
  void run_watchdog();
  void watch_handlers();
  void watch_progress(SteadyTime now);
  void claim_late(SteadyTime now);
  void hurry_after_failover(SteadyTime now);

  const Settings settings_;
  Scheduler& scheduler_;
  std::shared_ptr<InboxStore> store_;
  std::shared_ptr<const RunLog> run_log_;
  const Calls calls_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable claimed_;
  bool stopping_ = false;
  SteadyTime next_history_{};  ///< when to ask for the store's history, if a lane is fenced
  LanePtr claiming_;           ///< whose claim is under way
  std::thread thread_, watchdog_;
  std::unique_ptr<Purger> purger_;  ///< null without handlers that keep ids
};

}  // namespace turnstile
