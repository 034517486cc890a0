#pragma once
// Decides which worker runs what next. One lock protects lanes, permits and the store's state. Workers wait here. The
// polling thread, or a worker that has received records, feeds the scheduler. The polling thread takes positions from
// it. With the lock held it calls no outside code, except Limiter::try_acquire_fairly and Arrivals::wake, which never
// wait.
//
// Permits: a worker that finds none requests one from the limiter, which delivers it to the topic. The first free worker
// uses it. If it cannot, the permit is returned at once. While all workers are busy, it waits for one for a moment.

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/idle_workers.hpp"
#include "engine/lane_state.hpp"
#include "engine/permit_requests.hpp"
#include "engine/store_breaker.hpp"
#include "engine/worker.hpp"
#include "support/wake_up.hpp"

namespace turnstile::detail {

class Scheduler {
 public:
  /// `room_again` is called without the lock when a lane with records left in Kafka has room again, and when no worker
  /// waits for records any more. It may be called too often.
  Scheduler(Window window, std::shared_ptr<const RunLog> run_log, std::function<void()> room_again);
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // --- polling thread; lanes(), room(), feed() and pass() also for a worker that has the turn
  void open(LanePtr lane);
  [[nodiscard]] std::vector<LanePtr> lanes() const;
  /// How many records the lane may take now. 0 also requests a call of room_again().
  std::size_t room(LaneState& lane);
  void feed(LaneState& lane, std::unique_ptr<ports::Block> block);
  /// Between the last record and this offset there is no record, and never will be.
  void pass(LaneState& lane, Offset offset);
  /// The positions to commit: Kafka has not accepted them, and no commit of them is in progress. From now on it is.
  std::vector<TopicPartitionOffset> positions_to_commit();
  /// The result of a commit. A refused position is returned again.
  void commit_ended(const TopicPartitionOffset& position, bool committed);
  /// No unit of these lanes starts any more. Waits until none runs, or until `deadline`. False: some still run.
  bool drain(std::span<const LanePtr> lanes, SteadyTime deadline, const std::function<bool()>& give_up);
  /// Sets the stop_token of the running handlers of these lanes.
  void cancel(std::span<const LanePtr> lanes);
  /// This process no longer owns them: the results of running units are dropped.
  void close(std::span<const LanePtr> lanes);
  /// Ends the workers permanently.
  void stop();
  void receive(std::shared_ptr<ports::Arrivals> arrivals, std::function<void()> feed);  ///< before there are workers
  /// Why the consumer must stop: a handler has ended the transaction of its batch. Nothing starts any more.
  [[nodiscard]] std::optional<std::string> broken() const;
  // --- workers
  WorkerSlot& add_worker();  ///< it lives as long as the scheduler
  /// Waits for the next unit of work. False: the worker must end.
  bool next(LaneUnit& unit, WorkerSlot& slot);
  /// `results`: of the unit's own lane, and of the others, in their order.
  void finish(LaneUnit& unit, std::vector<UnitResult> results, WorkerSlot& slot);
  /// Between two transactions of a unit: its first `settled` messages are. False: no other one should start.
  bool go_on(LaneUnit& unit, std::size_t settled);
  // --- keeper
  [[nodiscard]] std::vector<WorkerAtWork> running();
  void return_unused_permits();  ///< those for which no worker became free; call it often
  /// The store answered, or failed, in a call outside of the workers.
  void store_answered();
  void store_failed(const std::string& why);
  [[nodiscard]] bool store_available() const;  ///< as far as known
  /// What is paused from now on. `breaks`: the circuit breaker of a handler has changed, too.
  void set_pauses(Pauses pauses, bool breaks = false);
  /// When the store became available (true) or unavailable, since the last call. Tell observers without the lock.
  [[nodiscard]] std::vector<bool> take_store_changes();
  template <class F>
  auto locked(F&& f) const {
    const std::lock_guard lock(mutex_);
    return f();
  }
  // Only inside locked():
  [[nodiscard]] const std::vector<LanePtr>& lanes_unlocked() const noexcept { return lanes_; }
  [[nodiscard]] bool all_idle_unlocked() const noexcept;
  void fence_unlocked(LaneState& lane, SteadyTime now, const std::string& why);  ///< the store knows a newer owner
  /// Why nothing starts: a suspect runs alone, or waits to. Empty: something may start.
  [[nodiscard]] std::string why_quiet_unlocked(const LaneState& lane, SteadyTime now) const;
  /// Why the store cannot be used. Empty: it can.
  [[nodiscard]] const std::string& store_trouble_unlocked() const noexcept { return store_trouble_; }
  [[nodiscard]] const Pauses& pauses_unlocked() const noexcept { return pauses_; }
  /// A claim succeeded: workers may run the lane.
  void admit(LaneState& lane, const OwnedPartition& place);

 private:
  /// What a worker did not find.
  struct Missing {
    std::vector<TopicState*> permits{};    ///< it must request one for each of these
    SteadyTime until = SteadyTime::max();  ///< when the crowd ends at the latest for which a lane waits
  };
  bool pick(LaneUnit& unit, SteadyTime now, Missing& missing);
  [[nodiscard]] bool has_more(SteadyTime now) const;
  bool pick_from(const LanePtr& lane, LaneUnit& unit, SteadyTime now, Missing& missing);
  bool find_permit(TopicState& topic, LaneUnit& unit, Missing& missing);
  bool has_permit(TopicState& topic, Missing& missing);
  void ask_for_permit(TopicState& topic);
  void deliver(TopicState& topic, Permit& permit, SteadyTime asked_at);
  std::vector<DeliveredPermit> take_unused_permits(SteadyTime until);
  bool is_crowded(LaneState& lane, SteadyTime now, Missing& missing);
  [[nodiscard]] bool is_quiet(SteadyTime now) const;
  bool is_quiet_for(const LanePtr& lane, SteadyTime now, Missing& missing);
  void want_no_quiet(std::span<const LanePtr> lanes);
  void join_others(LaneUnit& unit, SteadyTime now, std::size_t most);
  bool pick_look_up(const LanePtr& lane, LaneUnit& unit);
  std::size_t unit_size(const LaneState& lane) const;
  [[nodiscard]] SteadyTime next_event(SteadyTime now) const;
  void apply_look_up(LaneUnit& unit, UnitResult& result);
  void apply(LaneState& lane, std::span<const Work> works, std::span<const Verdict> verdicts, const UnitResult& result,
             SteadyTime now);
  void note_store(const UnitResult& result, SteadyTime began, SteadyTime now, const TopicState& topic);
  void store_changed(bool available, const std::string& why);

  /// A limiter delivers permits through it, because the limiter may outlive the scheduler.
  const std::shared_ptr<WakeUp<Scheduler>> wake_up_ = std::make_shared<WakeUp<Scheduler>>();
  const std::shared_ptr<PermitRequests> requests_ = std::make_shared<PermitRequests>();
  const Window window_;
  const std::size_t processors_;
  std::shared_ptr<const RunLog> run_log_;
  std::function<void()> room_again_;
  mutable std::mutex mutex_;
  IdleWorkers idle_workers_;
  std::condition_variable idle_;  ///< a unit has ended
  std::vector<LanePtr> lanes_;
  std::vector<TopicState*> delivered_to_;  ///< topics that have delivered permits
  std::deque<WorkerSlot> slots_;
  std::size_t turn_ = 0;  ///< where the next pick begins, so that lanes take turns
  bool stopping_ = false;
  const WorkerSlot* lone_ = nullptr;  ///< it runs a unit that must run alone: nothing else starts; may be null
  LanePtr wants_quiet_;  ///< its next unit must run alone, so nothing else starts until it is quiet; may be null
  std::optional<std::string> broken_;
  StoreBreaker breaker_;
  std::string store_trouble_;  ///< empty: none
  std::vector<bool> store_changes_;
  Pauses pauses_;
};

}  // namespace turnstile::detail
