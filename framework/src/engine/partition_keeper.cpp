#include "engine/partition_keeper.hpp"

#include <algorithm>

#include "engine/claim_wait.hpp"
#include "engine/holds.hpp"
#include "engine/overdue.hpp"
#include "turnstile/error.hpp"

namespace turnstile::detail {

namespace {

/// The interval of the watchdog: well below any sensible handler_timeout, with negligible cost.
constexpr std::chrono::milliseconds kTick{100};
/// The time between two attempts to claim a partition.
constexpr std::chrono::milliseconds kClaimRetry{500};
/// How often it checks whether the store still has the watermarks that have not moved.
constexpr std::chrono::milliseconds kLookBack{10'000};

}  // namespace

PartitionKeeper::PartitionKeeper(Settings settings, Scheduler& scheduler, std::shared_ptr<ports::Store> store,
                                 std::shared_ptr<const RunLog> run_log, Calls calls)
    : settings_(std::move(settings)),
      scheduler_(scheduler),
      store_(std::move(store)),
      run_log_(std::move(run_log)),
      calls_(std::move(calls)),
      next_flush_(std::chrono::steady_clock::now() + settings_.flush_interval),
      next_look_back_(std::chrono::steady_clock::now() + kLookBack),
      thread_([this] {
        keep_partitions();
        return PeriodicThread::after(kTick);
      }),
      watchdog_([this] {
        scheduler_.return_unused_permits();
        tell_of_store();
        watch_handlers();
        watch_progress(std::chrono::steady_clock::now());
        return PeriodicThread::after(kTick);
      }) {
  thread_.start(PeriodicThread::after(kTick));
  watchdog_.start(PeriodicThread::after(kTick));
  if (store_) pauses_ = std::make_unique<PauseKeeper>(settings_.pauses, scheduler_, store_, run_log_);
  if (!store_ || (settings_.retained.empty() && !settings_.producers)) return;
  purger_ = std::make_unique<Purger>(
      Purger::Settings{.purge = settings_.purge, .producers = settings_.producers, .observers = settings_.observers},
      settings_.retained, std::shared_ptr<ports::Retention>(store_, &store_->retention()), run_log_);
}

PartitionKeeper::~PartitionKeeper() { stop(); }

void PartitionKeeper::stop() {
  for (PeriodicThread* thread : {&thread_, &watchdog_}) thread->request_stop();
  if (pauses_) pauses_->request_stop();
  for (PeriodicThread* thread : {&thread_, &watchdog_}) thread->stop();
  pauses_.reset();
  purger_.reset();
  tell_of_store();
}

void PartitionKeeper::tell_of_store() {
  for (const bool available : scheduler_.take_store_changes()) settings_.observers.tell(&Observer::on_store, available);
}

void PartitionKeeper::keep_partitions() {
  if (!store_) return;
  const SteadyTime now = std::chrono::steady_clock::now();
  claim_late(now);
  if (now < next_flush_) return;
  const bool all = now >= next_look_back_;
  flush(scheduler_.lanes(), all);
  next_flush_ = now + settings_.flush_interval;
  if (all) next_look_back_ = now + kLookBack;
}

void PartitionKeeper::flush(std::span<const LanePtr> lanes, bool unmoved_too) {
  if (!store_) return;
  const std::lock_guard flushing(flushing_);
  std::vector<ports::WatermarkUpdate> updates;
  std::vector<LanePtr> whose;
  scheduler_.locked([&] {
    for (const auto& lane : lanes) {
      const bool ours = lane->phase == LaneState::Phase::open || lane->phase == LaneState::Phase::draining;
      if (!ours || !lane->place.fence || lane->replaced) continue;
      // Kafka first: if the store has a watermark, Kafka has had an offset of the group. If that offset is gone, the
      // topic is another one.
      if (!lane->committed) continue;
      const auto position = lane->lane.position() ? lane->lane.position() : lane->flushed;
      if (!position || (position == lane->flushed && !unmoved_too)) continue;
      updates.push_back({*lane->place.fence, *position, lane->flushed});
      whose.push_back(lane);
    }
  });
  if (updates.empty()) return;
  std::vector<ports::WatermarkState> states;
  try {
    states = store_->partitions().advance_watermarks(updates);
  } catch (const StoreUnavailable& e) {
    scheduler_.store_failed(e.what());  // reported once, not at every attempt
    return;
  } catch (const std::exception& e) {
    run_log_->warn(Code::watermark_not_saved,
                   std::string("The watermarks of this consumer's partitions were not saved; they lag until the next "
                               "save succeeds: ") +
                       e.what());
    return;
  }
  scheduler_.store_answered();
  scheduler_.locked([&] {
    const auto now = std::chrono::steady_clock::now();
    for (std::size_t i = 0; i < whose.size(); ++i) {
      LaneState& lane = *whose[i];
      if (lane.place.fence != updates[i].fence) continue;  // claimed again in the meantime
      switch (states[i]) {
        case ports::WatermarkState::moved: lane.flushed = updates[i].watermark; break;
        case ports::WatermarkState::not_ours:
          scheduler_.fence_unlocked(lane, now,
                                    "its watermark was refused: another member owns the partition, or the database has "
                                    "changed");
          break;
        case ports::WatermarkState::behind:
          if (lane.topic.fails_open()) {
            lane.flushed.reset();  // Kafka's offset counts
            break;
          }
          scheduler_.fence_unlocked(lane, now, "the database has a lower watermark than it had");
          lane.went_back = lane.phase == LaneState::Phase::fenced;
          if (lane.went_back) lane.claim_at = now;
          break;
      }
    }
  });
}

void PartitionKeeper::watch_handlers() {
  for (const auto& [lanes, watch] : scheduler_.running()) {
    if (lanes.empty()) continue;
    if (auto overdue = take_overdue(*watch, lanes.front()->topic.runner.plan(), *run_log_)) overdue->request_stop();
  }
}

void PartitionKeeper::watch_progress(SteadyTime now) {
  struct Stall {
    LanePtr lane;
    Hold hold;
    std::chrono::milliseconds lasted;
  };
  std::vector<Stall> stalls;
  const Holds holds(scheduler_, settings_.limiters.get());
  scheduler_.locked([&] {
    for (const auto& lane : scheduler_.lanes_unlocked()) {
      const auto position = lane->lane.position();
      const bool unclaimed = lane->phase == LaneState::Phase::claiming || lane->phase == LaneState::Phase::fenced;
      if (!unclaimed && (position != lane->last_position || !waits(*lane))) {
        lane->last_position = position;
        lane->moved_at = now;
        lane->stalled_for = {};
        continue;
      }
      const auto lasted = std::chrono::duration_cast<std::chrono::milliseconds>(now - lane->moved_at);
      if (lasted < settings_.stall_after + lane->stalled_for) continue;
      lane->stalled_for = lasted;
      stalls.push_back({lane, holds.of(*lane, now), lasted});
    }
  });
  for (const auto& stall : stalls) {
    const auto& runner = stall.lane->topic.runner;
    const std::string since = "no progress for " + std::to_string(stall.lasted.count() / 1000) + " s: ";
    const auto& [offset, why] = stall.hold;
    const auto& at = stall.lane->place.at;
    if (offset) run_log_->warn(Code::partition_stalled, at, runner.plan().handler, *offset, since + why);
    else run_log_->warn(Code::partition_stalled, at, since + why);
    runner.services().observers.tell(
        &Observer::on_stall, MessageReport{runner.plan().topic, stall.lane->place.at.partition, offset.value_or(-1),
                                           runner.plan().handler, 0, why, stall.lasted});
  }
}

/// A lane that another member has fenced waits for the rebalance. A lane that the database fenced because of its other
/// history need not wait.
void PartitionKeeper::hurry_after_failover(SteadyTime now) {
  const auto waits = [&](const LaneState& lane) {
    return lane.phase == LaneState::Phase::fenced && lane.place.fence && now < lane.claim_at &&
           lane.claim_at != SteadyTime::max();
  };
  const bool any = scheduler_.locked([&] {
    const auto& lanes = scheduler_.lanes_unlocked();
    return std::any_of(lanes.begin(), lanes.end(), [&](const auto& lane) { return waits(*lane); });
  });
  if (!any || now < next_history_) return;
  next_history_ = now + kClaimRetry;
  try {
    const std::int64_t history = store_->history();
    scheduler_.locked([&] {
      for (const auto& lane : scheduler_.lanes_unlocked()) {
        if (waits(*lane) && lane->place.fence->history != history) lane->claim_at = now;
      }
    });
  } catch (const std::exception& e) {
    scheduler_.store_failed(e.what());
  }
}

void PartitionKeeper::await_claims(std::span<const LanePtr> lanes) {
  std::unique_lock lock(mutex_);
  claimed_.wait(lock, [&] { return std::find(lanes.begin(), lanes.end(), claiming_) == lanes.end(); });
}

void PartitionKeeper::claim_late(SteadyTime now) {
  hurry_after_failover(now);
  const auto is_unclaimed = [](const LaneState& lane) {
    return lane.phase == LaneState::Phase::claiming || lane.phase == LaneState::Phase::fenced;
  };
  // False: the lane was released in the meantime.
  const auto begin = [&](const LanePtr& lane) {
    const std::lock_guard lock(mutex_);
    if (!scheduler_.locked([&] { return is_unclaimed(*lane); })) return false;
    claiming_ = lane;
    return true;
  };
  struct End {
    PartitionKeeper& keeper;
    ~End() {
      {
        const std::lock_guard lock(keeper.mutex_);
        keeper.claiming_.reset();
      }
      keeper.claimed_.notify_all();
    }
  };
  std::vector<LanePtr> due;
  scheduler_.locked([&] {
    for (const auto& lane : scheduler_.lanes_unlocked()) {
      if (!is_unclaimed(*lane) || now < lane->claim_at || lane->lane.running() > 0) continue;
      lane->claim_at = now + kClaimRetry;
      due.push_back(lane);
    }
  });
  for (const auto& lane : due) {
    if (!begin(lane)) continue;
    const End end{*this};
    try {
      const auto claims = store_->partitions().claim_partitions(settings_.group, {&lane->place.at, 1},
                                                                claim_wait(settings_.lock_timeout, {lane}, *run_log_));
      scheduler_.store_answered();
      // Until the engine has taken the claim: another claim would fence it.
      scheduler_.locked([&] { lane->claim_at = SteadyTime::max(); });
      calls_.claimed(lane, claims.front());
    } catch (const StoreBusy& e) {
      // If it is the old owner's transaction, the server ends it within its idle timeout, and the claim ends a session
      // that stands still elsewhere.
      scheduler_.locked([&] { lane->unclaimed_why = e.what(); });
    } catch (const std::exception& e) {
      scheduler_.locked([&] { lane->unclaimed_why = e.what(); });
      scheduler_.store_failed(e.what());
      return;
    }
  }
}

}  // namespace turnstile::detail
