#include "engine/scheduler.hpp"

#include <algorithm>
#include <limits>
#include <thread>

#include "support/failpoint.hpp"

namespace turnstile::detail {

namespace {

using std::chrono::steady_clock;

constexpr double kTransactionNs = std::chrono::duration<double, std::nano>(kUnitTime).count();
/// Without a transaction, only the cost of the hand-over (a few microseconds) is spread.
constexpr double kPlainNs = 1.5e6;
/// The size of a topic's first transactions, when nothing is known of its handler. Without a transaction, nothing is
/// gained by waiting for a second message: if the handler is slow, the next message of a key would wait for the others.
constexpr std::size_t kFirstTransaction = 8;

/// A unit of smaller transactions consists of several, so that each can start with the COMMIT before it.
constexpr std::size_t kChained = 16;

/// How often a suspect that waits looks for handlers that were left behind.
constexpr std::chrono::milliseconds kQuietLook{100};

/// Of handler_timeout: a unit that is made larger to spread its fixed costs may take so much, if it is one call.
constexpr double kOfTimeout = 0.5;

double nanoseconds(std::chrono::nanoseconds time) { return static_cast<double>(time.count()); }

/// How long its messages and transactions take.
void note_times(TopicState& topic, const std::vector<UnitResult>& results) {
  double messages = 0, in_handlers = 0;
  bool is_repeated = false;
  for (const UnitResult& result : results) {
    if (result.end != UnitResult::End::ran) return;
    messages += static_cast<double>(result.verdicts.size());
    in_handlers += nanoseconds(result.counts.handler_time);
    is_repeated = is_repeated || result.counts.rerun > 0;
  }
  if (messages <= 0) return;
  const auto note = [](double& mean, double value) { mean = mean <= 0 ? value : mean * 0.75 + value * 0.25; };
  const BatchReport& first = results.front().counts;  // it has the times of the common statements
  const auto took = nanoseconds(first.took);
  note(topic.mean_ns, took / messages);
  if (is_repeated) topic.cost.forget();
  else topic.cost.note(messages, took, topic.runner.runs_one_at_a_time() ? in_handlers : 0);
  const bool is_chained = messages > static_cast<double>(topic.runner.plan().batch);
  if (first.commit_time.count() <= 0 || is_chained) return;
  note(topic.handler_ns, in_handlers / messages);
  note(topic.transaction_ns, nanoseconds(first.claim_time + first.commit_time));
  note(topic.commit_ns, nanoseconds(first.commit_time));
}

/// How many messages the lane's next unit has if it consists of several transactions; 0: it is one. In the unit's target
/// time, `fits` messages run. In other orders than "partition", other workers could run them meanwhile. And the
/// transactions of several workers would lock the fence's row without a gap, so a claim of the partition would wait.
std::size_t chained(const LaneState& lane, double fits) {
  const TopicPlan& plan = lane.topic.runner.plan();
  const bool may_chain = plan.mode == Mode::transactional && plan.order == Order::partition && plan.batch < kChained;
  if (!may_chain || lane.unit_most < plan.batch) return 0;
  return static_cast<std::size_t>(std::min(fits, static_cast<double>(kChained)));
}

}  // namespace

Scheduler::Scheduler(Window window, std::shared_ptr<const RunLog> run_log, std::function<void()> room_again)
    : window_(window),
      processors_(std::max(2U, std::thread::hardware_concurrency())),
      run_log_(std::move(run_log)),
      room_again_(std::move(room_again)) {
  wake_up_->attach(*this);
}

void Scheduler::receive(std::shared_ptr<ports::Arrivals> arrivals, std::function<void()> feed) {
  idle_workers_.receive(std::move(arrivals), std::move(feed));
}

Scheduler::~Scheduler() {
  wake_up_->detach();
  requests_->withdraw_all();
}

WorkerSlot& Scheduler::add_worker() {
  const std::lock_guard lock(mutex_);
  return slots_.emplace_back();
}

std::vector<WorkerAtWork> Scheduler::running() {
  const std::lock_guard lock(mutex_);
  std::vector<WorkerAtWork> all;
  for (WorkerSlot& slot : slots_) all.push_back({slot.lanes, &slot.watch});
  return all;
}

// --- workers ---------------------------------------------------------------------------------------------------------

bool Scheduler::next(LaneUnit& unit, WorkerSlot& slot) {
  unit = LaneUnit{};
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    Missing missing;
    const SteadyTime now = steady_clock::now();
    const bool picked = pick(unit, now, missing);
    if (picked) {
      slot.lanes.push_back(unit.lane);
      for (const LaneWork& other : unit.others) slot.lanes.push_back(other.lane);
      slot.counts = unit.counts;
      if (unit.alone) lone_ = &slot;
      slot.since = steady_clock::now();
      slot.watch.reset();
    }
    std::vector<DeliveredPermit> unusable;
    if (!picked) unusable = take_unused_permits(SteadyTime::max());
    const std::uint64_t seen = idle_workers_.changes();
    // Also if there is a unit to run: no other worker requests the permits.
    if (!missing.permits.empty() || !unusable.empty()) {
      lock.unlock();
      unusable.clear();
      for (TopicState* topic : missing.permits) ask_for_permit(*topic);
      lock.lock();
    }
    if (picked) {
      const bool received = idle_workers_.leave(idle_workers_.count() > 0 && has_more(now));
      lock.unlock();
      if (!received) room_again_();
      return true;
    }
    if (idle_workers_.changes() != seen) continue;  // while it requested a permit, without the lock
    idle_workers_.wait(lock, std::min(next_event(now), missing.until));
  }
  return false;
}

/// Whether another worker may find a unit, or must wait until one is due.
bool Scheduler::has_more(SteadyTime now) const {
  const auto is_ready = [&](const LanePtr& lane) { return lane->may_start() && lane->lane.ready(now); };
  return std::any_of(lanes_.begin(), lanes_.end(), is_ready) || next_event(now) != SteadyTime::max();
}

bool Scheduler::pick(LaneUnit& unit, SteadyTime now, Missing& missing) {
  if (broken_) return false;
  if (lone_ != nullptr) {
    if (lone_->counts || !lone_->is_left_behind(now)) return false;
    lone_ = nullptr;
  }
  if (wants_quiet_) {
    const bool still = wants_quiet_->may_start() && wants_quiet_->lane.ready(now);
    if (still && !is_quiet(now)) return false;
    const LanePtr lane = std::exchange(wants_quiet_, nullptr);
    if (still && pick_from(lane, unit, now, missing)) return true;
  }
  // Topics whose permit has come are first: other lanes could keep all workers busy, until the permit is returned.
  for (std::size_t i = 0; i < lanes_.size() && !delivered_to_.empty(); ++i) {
    const LanePtr lane = lanes_[(turn_ + i) % lanes_.size()];
    if (lane->topic.delivered.empty() || !lane->may_start()) continue;
    const bool picked = pick_from(lane, unit, now, missing);
    if (wants_quiet_) return false;
    if (!picked) continue;
    turn_ += i + 1;
    return true;
  }
  for (std::size_t i = 0; i < lanes_.size() && !wants_quiet_; ++i) {
    const LanePtr lane = lanes_[turn_++ % lanes_.size()];
    if (lane->may_start() && pick_from(lane, unit, now, missing)) return true;
  }
  return false;
}

bool Scheduler::pick_from(const LanePtr& lane, LaneUnit& unit, SteadyTime now, Missing& missing) {
  TopicState& topic = lane->topic;
  if (topic.delivered.empty() && topic.asked > idle_workers_.count())
    return breaker_.is_closed() && pick_look_up(lane, unit);
  if (!lane->lane.ready(now) || is_crowded(*lane, now, missing)) return false;
  HandlerBreaker* const handler_breaker = topic.runner.breaker();
  if (handler_breaker != nullptr && handler_breaker->waits(now)) return false;
  using Entry = StoreBreaker::Entry;
  const Entry entry = topic.needs_store() ? breaker_.enter(now, topic.runner.plan().store_down) : Entry::with_store;
  if (entry == Entry::waits) return false;
  const bool unclaimed = entry == Entry::unclaimed;
  // With suspects the permit is taken last: if it were returned under this lock, it would call the scheduler.
  const bool careful = lane->lane.has_suspects();
  const bool probes = handler_breaker != nullptr && handler_breaker->begin_probe(now);
  const std::size_t most = probes ? 1 : unit_size(*lane);
  const auto undo = [&] {
    for (const Work& work : unit.works) lane->lane.put_back(work);
    unit.works.clear();
    if (entry == Entry::as_probe) breaker_.leave();
    if (probes) handler_breaker->leave();
  };
  // A suspect runs only where the store counts its deaths, and nothing waits for quiet while the store is unavailable.
  const bool past_suspects = unclaimed || (entry == Entry::as_probe && !is_quiet(now));
  if (careful) lane->lane.hand_out(most, now, unit.works, past_suspects);
  const bool is_alone = !unit.works.empty() && unit.works.front().alone;
  if ((careful && unit.works.empty()) || (is_alone && past_suspects)) {
    undo();
    return false;
  }
  if ((is_alone && !is_quiet_for(lane, now, missing)) || (topic.limiter && !find_permit(topic, unit, missing))) {
    undo();
    return !wants_quiet_ && breaker_.is_closed() && pick_look_up(lane, unit);
  }
  if (!careful) lane->lane.hand_out(most, now, unit.works);
  lane->crowded_since.reset();
  unit.received_at.reset();
  if (topic.runner.services().tracer && !unit.works.empty())
    unit.received_at = arrival_of(*lane, unit.works.front().message->offset());
  unit.lane = lane;
  unit.unclaimed = unclaimed;
  unit.probes = probes;
  unit.alone = is_alone;
  unit.counts = is_alone && all_idle_unlocked();
  if (!unclaimed && !probes && entry == Entry::with_store)
    join_others(unit, now, std::min(most, topic.runner.plan().batch));
  return true;
}

bool Scheduler::pick_look_up(const LanePtr& lane, LaneUnit& unit) {
  if (!lane->topic.runner.can_look_up()) return false;
  unit.works = lane->lane.lend_waiting(lane->looked_up, lane->topic.runner.plan().batch);
  if (unit.works.empty()) return false;
  lane->looked_up = unit.works.back().seq + 1;
  unit.lane = lane;
  unit.looks_up = lane->place;
  return true;
}

std::size_t Scheduler::unit_size(const LaneState& lane) const {
  const TopicState& topic = lane.topic;
  const TopicPlan& plan = topic.runner.plan();
  const bool is_plain = plan.mode == Mode::at_least_once;
  if (topic.mean_ns <= 0) return is_plain ? 1 : std::min({plan.batch, kFirstTransaction, lane.unit_most});
  const double target = is_plain ? kPlainNs : kTransactionNs;
  const double fits = target / topic.mean_ns;
  const std::size_t most = std::min(plan.batch, lane.unit_most);
  if (fits >= static_cast<double>(plan.batch)) return std::max(most, chained(lane, fits));
  const double longest = topic.runner.runs_one_at_a_time() ? std::numeric_limits<double>::infinity()
                                                           : kOfTimeout * nanoseconds(plan.handler_timeout);
  return std::min(topic.cost.size(fits, target, longest), most);
}

/// The first time after `now` at which pick() may find more than it did at `now`. What was due at `now` and did not start
/// waits for something else, whose end wakes a worker: a message, a permit, or the end of a unit.
SteadyTime Scheduler::next_event(SteadyTime now) const {
  // Nothing else tells that a handler is left behind.
  const bool looks = wants_quiet_ || (lone_ != nullptr && !lone_->counts);
  SteadyTime until = looks ? now + kQuietLook : SteadyTime::max();
  const auto consider = [&](SteadyTime event) {
    if (event > now) until = std::min(until, event);
  };
  for (const auto& lane : lanes_) {
    if (!lane->may_start()) continue;
    const bool waits_for_store = !lane->topic.fails_open() || lane->lane.has_suspects();
    if (lane->topic.needs_store() && waits_for_store && !breaker_.is_closed()) consider(breaker_.next_probe());
    if (const auto due = lane->lane.next_due()) consider(*due);
    const HandlerBreaker* const breaker = lane->topic.runner.breaker();
    if (const auto probe = breaker != nullptr ? breaker->next_probe() : std::nullopt) consider(*probe);
  }
  return until;
}

void Scheduler::finish(LaneUnit& unit, std::vector<UnitResult> results, WorkerSlot& slot) {
  TURNSTILE_FAILPOINT("before-release");
  unit.permit.give_back();
  const SteadyTime now = steady_clock::now();
  std::vector<std::unique_ptr<ports::Block>> spent;
  TopicState& topic = unit.lane->topic;
  bool feed = false;
  {
    const std::lock_guard lock(mutex_);
    slot.lanes.clear();
    const auto end = [&](LaneState& lane) {
      for (auto& block : lane.lane.take_spent()) spent.push_back(std::move(block));
      lane.widen_if_dry(window_, now);
      if (lane.wants_feed && lane.has_room(window_, now)) {
        lane.wants_feed = false;
        feed = true;
      }
      if (lane.phase != LaneState::Phase::open && lane.lane.running() == 0) idle_.notify_all();
      // This worker looks for the next unit itself, and wakes another one if there are more. With a limiter, another
      // one also requests a permit. What waits for quiet may start now.
      else if (wants_quiet_ || (lane.topic.limiter && lane.lane.ready(now))) idle_workers_.wake_one();
    };
    if (unit.unclaimed) topic.unclaimed += results.front().counts.unclaimed;
    else
      for (const UnitResult& result : results) note_store(result, slot.since, now, topic);
    if (unit.looks_up) {
      apply_look_up(unit, results.front());
    } else {
      const std::span<const Work> works(unit.works);
      const std::span<const Verdict> verdicts(results.front().verdicts);
      apply(*unit.lane, works.subspan(unit.settled), verdicts.subspan(unit.settled), results.front(), now);
      for (std::size_t k = 0; k < unit.others.size(); ++k)
        apply(*unit.others[k].lane, unit.others[k].works, results[k + 1].verdicts, results[k + 1], now);
      note_times(topic, results);
    }
    if (std::exchange(unit.probes, false)) {
      topic.runner.breaker()->leave();
      idle_workers_.wake_all();
    }
    if (lone_ == &slot) {
      lone_ = nullptr;
      idle_workers_.wake_all();
    }
    feed = broken_.has_value();  // the polling thread must see it
    end(*unit.lane);
    for (const LaneWork& other : unit.others) end(*other.lane);
  }
  if (feed) room_again_();
  if (unit.looks_up && results.front().counts.duplicates > 0)
    topic.runner.services().observers.tell(&Observer::on_batch, results.front().counts);
  unit = LaneUnit{};
}

void Scheduler::apply_look_up(LaneUnit& unit, UnitResult& result) {
  LaneState& lane = *unit.lane;
  lane.lane.return_lent();
  for (std::size_t i = 0; i < unit.works.size(); ++i) {
    if (result.verdicts[i].kind != Verdict::Kind::settled) continue;
    // If the message was handed out in the meantime, the worker that runs it reports it.
    if (lane.phase != LaneState::Phase::open || !lane.lane.settle_waiting(unit.works[i].seq))
      --result.counts.duplicates;
  }
}

bool Scheduler::go_on(LaneUnit& unit, std::size_t settled) {
  const std::lock_guard lock(mutex_);
  // In other orders another worker that ends its unit may free the messages, to which this unit still refers.
  const bool is_only_unit = unit.lane->topic.runner.plan().order == Order::partition;
  for (; is_only_unit && unit.settled < settled; ++unit.settled) unit.lane->lane.settle(unit.works[unit.settled]);
  const bool others_wait = wants_quiet_ || (lone_ != nullptr && !lone_->works_on(*unit.lane));
  return unit.lane->may_start() && !others_wait && !stopping_ && !broken_;
}

void Scheduler::apply(LaneState& lane, std::span<const Work> works, std::span<const Verdict> verdicts,
                      const UnitResult& result, SteadyTime now) {
  for (std::size_t i = 0; i < works.size(); ++i) {
    const Verdict& verdict = verdicts[i];
    switch (verdict.kind) {
      case Verdict::Kind::settled: lane.lane.settle(works[i]); break;
      case Verdict::Kind::put_back: lane.lane.put_back(works[i]); break;
      case Verdict::Kind::retry: lane.lane.retry(works[i], now + verdict.delay, verdict.attempt); break;
    }
  }
  // After a failure there may be more. Small units come first, so that the good messages between failing ones do not
  // run again and again.
  if (result.counts.rerun > 0) lane.unit_most = 1;
  else if (result.counts.retried + result.counts.dead == 0 && lane.unit_most < lane.topic.runner.plan().batch)
    lane.unit_most *= 2;
  if (result.end == UnitResult::End::fenced) fence_unlocked(lane, now, result.why);
  if (result.end == UnitResult::End::broken && !broken_) {
    broken_ = result.why;
    run_log_->error(Code::transaction_ended, "stopping: " + result.why);
  }
}

std::optional<std::string> Scheduler::broken() const {
  const std::lock_guard lock(mutex_);
  return broken_;
}

void Scheduler::fence_unlocked(LaneState& lane, SteadyTime now, const std::string& why) {
  if (lane.phase != LaneState::Phase::open) return;
  lane.phase = LaneState::Phase::fenced;
  // The rebalance that made another member the owner should arrive soon. If it does not, no other member reads this
  // partition.
  lane.claim_at = now + std::chrono::seconds(10);
  run_log_->warn(
      Code::partition_fenced, lane.place.at,
      "fenced: this process drops what it has not committed of the partition, and claims it again (" + why + ")");
}

void Scheduler::stop() {
  std::vector<DeliveredPermit> unused;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    wants_quiet_.reset();
    unused = take_unused_permits(SteadyTime::max());
    idle_workers_.wake_all();
  }
  requests_->withdraw_all();  // a permit that is on its way is returned by deliver()
}

}  // namespace turnstile::detail
