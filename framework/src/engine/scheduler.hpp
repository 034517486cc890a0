#pragma once
// Which worker runs what next: lanes, permits and the store's state, under one lock. Workers wait here; the polling thread
// feeds it and takes positions from it; nobody calls out of it with the lock held (except Limiter::try_acquire_fairly, which
// never waits).
//
// Permits: a worker that finds none asks the limiter for one, and waits. The permit is delivered to the topic, and used by
// whichever worker comes first. One that no worker can use now is given back at once, so that it does not lie idle here while
// others want it.

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

#include "delivery/owned_partition.hpp"
#include "delivery/run_state.hpp"
#include "delivery/topic_runner.hpp"
#include "engine/lane.hpp"
#include "engine/store_breaker.hpp"
#include "turnstile/ports/limiter.hpp"

namespace turnstile {

/// A topic in this process.
struct TopicState {
  TopicState(TopicPlan plan, Pipeline pipeline, HandlerId handler, TopicRunner::Services services,
             std::shared_ptr<Limiter> limit)
      : runner(std::move(plan), std::move(pipeline), handler, std::move(services)), limiter(std::move(limit)) {}

  TopicRunner runner;
  std::shared_ptr<Limiter> limiter;  ///< null: no limit but the workers
  // Guarded by the scheduler's lock:
  std::size_t asked = 0;          ///< permits that were asked for, and have not been delivered yet
  std::vector<Permit> delivered;  ///< and not used yet
  double mean_ns = 0;             ///< a message's time through a worker, moving average; 0: not known yet
  std::int64_t unclaimed = 0;     ///< messages that ran without the store since it went away
  [[nodiscard]] bool needs_store() const noexcept { return runner.plan().mode != Mode::at_least_once; }
  [[nodiscard]] bool fails_open() const noexcept { return runner.plan().store_down == StoreDownPolicy::run; }
};

/// One assignment of one partition. Outlives the assignment while a worker still holds some of its messages.
struct LaneState {
  LaneState(TopicState& t, OwnedPartition p) : topic(t), place(std::move(p)), lane(t.runner.plan().order) {}

  enum class Phase : std::uint8_t {
    claiming,  ///< the store does not know us as the owner yet: nothing is taken, nothing runs
    open,
    draining,  ///< nothing new starts
    fenced,    ///< the store knows a newer owner
    gone,
  };
  TopicState& topic;
  OwnedPartition place;  ///< changed only while nothing of the lane runs
  Lane lane;
  Phase phase = Phase::open;
  bool wants_feed = false;           ///< the polling thread left records behind for want of room
  std::optional<Offset> read_up_to;  ///< the polling thread's: what it last told the lane
  Seq looked_up = 0;                 ///< messages before it were looked up in the inbox
  std::size_t unit_most = SIZE_MAX;  ///< messages of a unit; few after one that was rolled back because of one of them
  std::optional<Offset> start;       ///< where reading began: all below it is settled, so it may be committed
  std::optional<Offset> committed;   ///< the group's offset that Kafka has taken
  std::optional<Offset> committing;  ///< the one that is on its way to Kafka
  SteadyTime committing_since{};
  bool replaced = false;          ///< Kafka has another log under its name: how far it came says nothing any more
  std::optional<Offset> flushed;  ///< the store's watermark, when it was last heard of
  bool went_back = false;         ///< fenced: the store has less than `flushed`
  /// The lane before this one of the same assignment, whose fence was of another history of the store.
  struct Before {
    SettledOffsets settled;
    std::optional<Offset> first;  ///< where the group began to read the partition, if that lane did it
  };
  std::optional<Before> before;
  std::optional<Offset> last_position;  ///< for the watchdog, with `moved_at`
  SteadyTime moved_at{};
  std::chrono::milliseconds stalled_for{};             ///< how long the stall had lasted when it was last told of
  SteadyTime claim_at{};                               ///< claiming, fenced: when to try (again)
  std::string unclaimed_why = "it was not tried yet";  ///< claiming, fenced
};
using LanePtr = std::shared_ptr<LaneState>;

/// What a lane that takes its place has to know. Inside Scheduler::locked() only.
LaneState::Before what_was_settled(const LaneState& lane);

/// What a worker is given to do.
struct Unit {
  LanePtr lane;
  std::vector<Work> works;
  Permit permit;
  bool look_up = false;    ///< no permit: only see whether they are settled already
  bool unclaimed = false;  ///< the store is away, and the topic goes on without it
  bool alone = false;      ///< nothing else runs until it has ended
};

/// A worker thread, as seen from outside.
struct WorkerSlot {
  RunState watch;
  // Guarded by the scheduler's lock:
  LanePtr lane;  ///< what it works on
  SteadyTime since{};
};

/// What is taken of each partition, and not settled yet, at most.
struct Window {
  std::size_t messages = 10'000;
  std::size_t bytes = std::size_t{16} << 20;  ///< a block more than that, since a message must fit that is larger
};

class Scheduler {
 public:
  /// `room_again` is called, without the lock, when a lane whose records were left behind has room (may come too often).
  Scheduler(Window window, std::shared_ptr<const RunLog> run_log, std::function<void()> room_again);

  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // --- polling thread
  void open(LanePtr lane);
  [[nodiscard]] std::vector<LanePtr> lanes() const;
  /// How many records the lane may take now; 0 also asks for room_again().
  std::size_t room(LaneState& lane);
  void feed(LaneState& lane, std::unique_ptr<Block> block);
  /// Between the last record that was fed and this offset there is none, and never will be.
  void pass(LaneState& lane, Offset offset);
  /// Positions that Kafka has not taken yet and that are not on their way to it; from now on they are.
  std::vector<TopicPartitionOffset> positions_to_commit();
  /// What became of one of them. One that was refused is given out again.
  void commit_ended(const TopicPartitionOffset& position, bool committed);
  /// No unit of these starts any more; waits until none runs, or `deadline`. False: some still run.
  bool drain(std::span<const LanePtr> lanes, SteadyTime deadline, const std::function<bool()>& give_up);
  /// Asks what still runs of them to stop.
  void cancel(std::span<const LanePtr> lanes);
  /// They are no longer ours: what still runs is dropped when it ends.
  void close(std::span<const LanePtr> lanes);
  /// Ends the workers' waiting for good.
  void stop();
  /// Why the consumer must stop, once it must: a handler has ended the transaction of its batch. Nothing starts any more then.
  [[nodiscard]] std::optional<std::string> broken() const;

  // --- workers
  /// A worker's slot; lives as long as the scheduler.
  WorkerSlot& add_worker();
  /// The next unit of work; false when the worker is to end. Waits.
  bool next(Unit& unit, WorkerSlot& slot);
  void finish(Unit& unit, UnitResult result, WorkerSlot& slot);

  // --- keeper
  /// What each worker runs: a copy of its lane (null when it waits) and its watch.
  [[nodiscard]] std::vector<std::pair<LanePtr, RunState*>> running();
  /// The store answered, or did not, to somebody else than a worker.
  void store_answered();
  void store_failed(const std::string& why);
  /// As far as is known.
  [[nodiscard]] bool store_available() const;
  template <class F>
  auto locked(F&& f) const {
    const std::lock_guard lock(mutex_);
    return f();
  }
  /// Inside locked() only.
  [[nodiscard]] const std::vector<LanePtr>& lanes_unlocked() const noexcept { return lanes_; }
  /// No worker holds work. Inside locked() only.
  [[nodiscard]] bool all_idle_unlocked() const noexcept;
  /// The store knows a newer owner of the lane. Inside locked() only.
  void fence_unlocked(LaneState& lane, SteadyTime now, const std::string& why);
  /// Why the store cannot be used; empty: it can. Inside locked() only.
  [[nodiscard]] const std::string& store_trouble_unlocked() const noexcept { return store_trouble_; }
  /// A claim came through: the lane may be worked on.
  void admit(LaneState& lane, const OwnedPartition& place);

 private:
  bool pick(Unit& unit, SteadyTime now, std::vector<TopicState*>& starved);
  bool pick_from(const LanePtr& lane, Unit& unit, SteadyTime now, std::vector<TopicState*>& starved);
  bool find_permit(TopicState& topic, Unit& unit, std::vector<TopicState*>& starved);
  void ask_for_permit(TopicState& topic);
  void deliver(TopicState& topic, Permit& permit);
  std::vector<Permit> unusable_permits(bool picked);
  bool is_crowded(const LaneState& lane, SteadyTime now);
  [[nodiscard]] bool has_room(const Lane& lane) const noexcept;
  bool is_quiet_for(const LanePtr& lane);
  void want_no_quiet(std::span<const LanePtr> lanes);
  bool pick_look_up(const LanePtr& lane, Unit& unit);
  std::size_t unit_size(const LaneState& lane) const;
  [[nodiscard]] SteadyTime next_event() const;
  void apply(Unit& unit, UnitResult& result, SteadyTime now);
  void note_store(const UnitResult& result, SteadyTime now, const TopicState& topic);
  void store_changed(bool available, const std::string& why);

  /// What a limiter delivers permits through: it may know us for longer than we live.
  struct Bell {
    std::mutex mutex;
    Scheduler* scheduler = nullptr;
  };

  const std::shared_ptr<Bell> bell_ = std::make_shared<Bell>();
  const Window window_;
  const std::size_t processors_;
  std::shared_ptr<const RunLog> run_log_;
  std::function<void()> room_again_;
  mutable std::mutex mutex_;
  std::condition_variable work_;  ///< something may start
  std::condition_variable idle_;  ///< something has ended
  std::vector<LanePtr> lanes_;
  std::vector<TopicState*> delivered_to_;  ///< topics that may have delivered permits
  std::deque<WorkerSlot> slots_;
  std::size_t turn_ = 0;     ///< where the next pick begins, so that lanes take turns
  std::size_t waiting_ = 0;  ///< workers that wait
  std::size_t asking_ = 0;   ///< workers that ask for a permit, and look again afterwards
  bool stopping_ = false;
  bool runs_alone_ = false;  ///< a unit that is to run alone is out: nothing else starts
  LanePtr wants_quiet_;      ///< its next unit is to run alone: nothing else starts until nothing runs; may be null
  std::optional<std::string> broken_;
  SteadyTime crowded_until_ = SteadyTime::max();  ///< when the last pick's crowd has an end at the latest
  StoreBreaker breaker_;
  std::string store_trouble_;  ///< empty: none
};

}  // namespace turnstile
