#include "engine/engine.hpp"

#include <algorithm>
#include <utility>

#include "engine/end_bound.hpp"
#include "engine/engine_shared.hpp"
#include "engine/setup.hpp"
#include "support/failpoint.hpp"
#include "turnstile/error.hpp"

namespace turnstile::detail {

namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

/// stop() only sets a flag, so that a signal handler may call it. This is the longest time until the flag is seen.
constexpr milliseconds kPollWait{100};
/// How many records are taken from a partition's queue at a time.
constexpr std::size_t kTake = 1'000;

}  // namespace

Engine::Engine(EngineSettings settings, ports::Broker& broker, std::shared_ptr<ports::Store> store,
               std::shared_ptr<ports::Limiters> limiters, std::shared_ptr<const RunLog> run_log)
    : settings_(std::move(settings)),
      store_(std::move(store)),
      trials_(store_ ? store_->trials() : nullptr),
      limiters_(std::move(limiters)),
      run_log_(std::move(run_log)),
      shared_(std::make_shared<Shared>(Window{settings_.consumer.window, settings_.consumer.window_bytes}, run_log_)),
      consumer_(broker.open_consumer()) {
  shared_->waker.point_to(consumer_.get());
}

Engine::~Engine() {
  {
    const std::lock_guard turn(shared_->turn);
    shared_->engine = nullptr;
  }
  shared_->waker.point_to(nullptr);
  settings_.status->ask({});
  if (reporter_) reporter_->stop();
  if (keeper_) keeper_->stop();
  shared_->scheduler.stop();
  for (auto& worker : workers_) {
    if (worker.joinable()) worker.join();
  }
}

TopicState& Engine::add_topic(std::unique_ptr<TopicState> topic) {
  return *shared_->topics.emplace_back(std::move(topic));
}

void Engine::run(const std::atomic<int>& stop) {
  stop_ = &stop;
  // Not at the shutdown: a consumer that is halted may wait for its stop for days, and records results meanwhile.
  struct End {
    Engine& engine;
    ~End() { engine.end_pending_completions(); }
  } const end{*this};
  std::unique_lock turn(shared_->turn);
  receive();
  start_workers();
  PartitionKeeper::Calls calls;
  calls.claimed = [this](LanePtr lane, ports::PartitionClaim claim) {
    {
      const std::lock_guard lock(shared_->mutex);
      shared_->late_claims.emplace_back(std::move(lane), std::move(claim));
    }
    consumer_->wake();
  };
  for (const auto& topic : shared_->topics) names_.push_back(topic->runner.plan().topic);
  Observers observers;
  for (const auto& topic : shared_->topics) observers.add_missing(topic->runner.services().observers);
  keeper_ =
      std::make_unique<PartitionKeeper>(PartitionKeeper::Settings{.group = settings_.group,
                                                                  .stall_after = settings_.consumer.stall_after,
                                                                  .lock_timeout = settings_.lock_timeout,
                                                                  .limiters = limiters_,
                                                                  .purge = settings_.consumer.purge,
                                                                  .retained = retained(shared_->topics),
                                                                  .producers = numbering_producers(shared_->topics),
                                                                  .observers = observers,
                                                                  .pauses = {.topics = names_,
                                                                             .needs_store = need_store(shared_->topics),
                                                                             .group = settings_.group,
                                                                             .breakers = breakers_of(shared_->topics)}},
                                        shared_->scheduler, store_, run_log_, std::move(calls));
  if (trials_)
    outlasting_ = std::make_unique<OutlastingTrials>(shared_->scheduler, trials_,
                                                     shared_->topics.front()->runner.services().trials, run_log_);
  reporter_ = std::make_unique<StatusReporter>(
      StatusReporter::Settings{.observers = observers,
                               .on_ends = [this](const auto& ends) { shared_->note(ends); },
                               .store = need_store(shared_->topics) ? store_ : nullptr,
                               .counts_claims = uses(shared_->topics, Mode::leased),
                               .asked_of_group = {{names_.front(), 0}},
                               .longest_round = settings_.consumer.drain_timeout},
      *settings_.status, *consumer_);
  consumer_->hurry_when([&stop] { return stop.load(std::memory_order_relaxed) > 1; });
  consumer_->subscribe(names_, *this);
  at_work_ = true;
  count_partitions(0);
  settings_.status->ask([this](Status& status) { describe(status); });
  std::string halted;
  try {
    halted = poll_until(stop, turn);
  } catch (const std::exception& e) {
    // Before the waits of an orderly shutdown, which may be long: the log should first tell why.
    run_log_->error(code_of(e), std::string("the consumer ends: ") + e.what());
    settings_.status->set(Health::State::stopping);
    shut_down();
    throw;
  }
  if (!halted.empty()) return halt(halted);
  settings_.status->set(Health::State::stopping);
  shut_down();
}

/// Why it cannot continue. Empty: it was stopped.
std::string Engine::poll_until(const std::atomic<int>& stop, std::unique_lock<std::mutex>& turn) {
  while (stop.load(std::memory_order_relaxed) == 0) {
    reporter_->polls();
    turn.unlock();
    if (!shared_->have_come) consumer_->wait(kPollWait);
    turn.lock();
    shared_->have_come = false;
    consumer_->poll(milliseconds(0));
    if (fatal_) std::rethrow_exception(fatal_);
    if (const auto why = shared_->scheduler.broken()) throw TransactionEnded(*why);
    take_late_claims();
    begin_other_logs();
    feed_all();
    if (steady_clock::now() >= next_commit_) commit(false);
    if (steady_clock::now() < look_again_) continue;
    look_again_ = steady_clock::now() + kPollWait;
    tell_of_waiting();
    if (std::string why = why_halted(); !why.empty()) return why;
  }
  return {};
}

/// A worker that has received records takes them, unless another thread has the turn. That thread takes them later.
void Engine::receive() {
  shared_->engine = this;
  shared_->scheduler.receive(consumer_->arrivals(), [shared = shared_.get()] {
    shared->have_come = true;
    while (shared->have_come) {
      const std::unique_lock turn(shared->turn, std::try_to_lock);
      if (!turn || shared->engine == nullptr) return;
      shared->have_come = false;
      shared->engine->feed_received();
    }
  });
}

/// On the thread of a worker, which has the turn.
void Engine::feed_received() noexcept {
  // After an exception a block may be lost: nothing that follows it may be fed.
  if (fatal_ || consumer_->must_poll()) return consumer_->wake();
  try {
    feed_all();
  } catch (...) {
    fatal_ = std::current_exception();
  }
  if (fatal_ || !other_logs_.empty() || steady_clock::now() >= next_commit_) consumer_->wake();
}

void Engine::start_workers() {
  for (const auto& topic : shared_->topics) {
    if (topic->limiter) topic->limiter->expect(settings_.workers);
  }
  for (int i = 0; i < settings_.workers; ++i) {
    WorkerSlot& slot = shared_->scheduler.add_worker();
    workers_.emplace_back([shared = shared_, &slot, store = store_] { work(shared->scheduler, slot, store.get()); });
  }
}

void Engine::feed_all() {
  bool more = false;
  for (const auto& lane : shared_->scheduler.lanes()) {
    // Continue until the queue is empty (then new records wake a thread) or the lane is full (then the scheduler wakes
    // the polling thread when there is room). If it stopped anywhere else, no thread would take records that are ready.
    std::size_t taken = 0;
    for (std::size_t room; (room = shared_->scheduler.room(*lane)) > 0;) {
      auto block = take(lane, std::min(room, kTake));
      if (!block) {
        if (!lane->replaced) pass_gap(*lane);  // take() may have found another log, with another end
        break;
      }
      TURNSTILE_FAILPOINT("after-poll");
      taken += block->messages().size();
      shared_->scheduler.feed(*lane, std::move(block));
      // The group's offset shows whether Kafka still has the log that was read, so the group must have one.
      if (!std::exchange(lane->was_fed, true) && !logs_.had_offset(lane->place.at)) next_commit_ = {};
      if (taken < settings_.consumer.window) continue;
      more = true;  // the other lanes, rebalances and commits get their turn
      break;
    }
  }
  if (more) consumer_->wake();
}

/// Offsets at a partition's end without messages, such as transactions leave: they may be committed.
void Engine::pass_gap(LaneState& lane) {
  const auto end = consumer_->read_up_to(lane.place.at);
  if (!end || end == lane.read_up_to) return;
  lane.read_up_to = end;
  shared_->scheduler.pass(lane, *end);
}

void Engine::commit(bool wait) {
  next_commit_ = steady_clock::now() + settings_.consumer.commit_interval;
  const auto positions = still_there(shared_->scheduler.positions_to_commit(), wait);
  if (positions.empty()) return;
  TURNSTILE_FAILPOINT("before-offset-commit");
  std::vector<ports::OffsetCommit> commits;
  for (const auto& [at, offset] : positions) commits.push_back({at, offset, logs_.metadata(at)});
  consumer_->commit(commits, wait);
}

void Engine::on_commit_end(std::span<const TopicPartitionOffset> offsets, bool committed) {
  for (const auto& offset : offsets) {
    shared_->scheduler.commit_ended(offset, committed);
    if (committed) logs_.has_offset(offset.at, LeaseClock::now());
  }
}

// --- the assignment --------------------------------------------------------------------------------------------------

/// Null for a topic without a handler.
TopicState* Engine::topic_of(const TopicPartition& at) const {
  const auto topic = std::find_if(shared_->topics.begin(), shared_->topics.end(),
                                  [&](const auto& t) { return t->runner.plan().topic == at.topic; });
  return topic == shared_->topics.end() ? nullptr : topic->get();
}

void Engine::on_revoked(std::span<const TopicPartition> partitions, bool lost) {
  reporter_->revokes(lost);
  std::vector<LanePtr> lanes;
  for (const auto& lane : shared_->scheduler.lanes()) {
    if (std::find(partitions.begin(), partitions.end(), lane->place.at) != partitions.end()) lanes.push_back(lane);
  }
  release_in_rebalance(lanes, lost);
  run_log_->info((lost ? "lost " : "revoked ") + std::to_string(partitions.size()) + " partitions");
  if (at_work_) count_partitions(partitions_ - std::min(partitions_, partitions.size()));
  for (const auto& at : partitions) {
    if (const TopicState* topic = topic_of(at)) topic->runner.services().observers.tell(&Observer::on_revoked, at);
  }
}

namespace {

/// A worker without a running handler waits for another system.
std::string what_still_runs(Scheduler& scheduler, const std::vector<LanePtr>& lanes) {
  std::size_t handlers = 0, waiting = 0;
  for (const auto& worker : scheduler.running()) {
    const bool is_theirs = std::any_of(worker.lanes.begin(), worker.lanes.end(), [&](const LanePtr& lane) {
      return std::find(lanes.begin(), lanes.end(), lane) != lanes.end();
    });
    if (is_theirs) ++(worker.watch->look() ? handlers : waiting);
  }
  const std::string time = std::to_string(kGrace.count()) + " ms";
  if (handlers == 0)
    return "units have not ended within " + time + " although no handler of them runs: " + std::to_string(waiting) +
           " workers wait for PostgreSQL, or for the brokers to accept a dead letter (delivery.timeout.ms).";
  return std::to_string(handlers) + " handlers still run " + time +
         " after their stop_token was set. Have the handlers check their stop_token.";
}

}  // namespace

/// Stops starting handlers, waits for running ones, writes the watermarks, and releases the lanes.
void Engine::release(const std::vector<LanePtr>& lanes, bool lost) {
  if (lanes.empty()) return;
  const auto hurry = [this] { return stop_ != nullptr && stop_->load(std::memory_order_relaxed) > 1; };
  const auto deadline = steady_clock::now() + (lost ? milliseconds(0) : settings_.consumer.drain_timeout);
  if (!shared_->scheduler.drain(lanes, deadline, hurry)) {
    shared_->scheduler.cancel(lanes);
    const bool ended = shared_->scheduler.drain(lanes, steady_clock::now() + kGrace, [] { return false; });
    if (!ended) {
      run_log_->error(Code::handler_not_stopping, what_still_runs(shared_->scheduler, lanes) +
                                                      " Their partitions are released; PostgreSQL refuses their "
                                                      "transactions once another member has claimed the partitions");
    }
  }
  std::vector<TopicPartition> ended;
  for (const auto& lane : lanes) {
    if (shared_->scheduler.locked([&] { return lane->lane.running() == 0; })) ended.push_back(lane->place.at);
  }
  // Before what waits for other members and for Kafka: the store may be cut meanwhile (EndBound).
  if (!at_work_ && outlasting_) outlasting_->end(lanes);
  limiters_->on_revoked(settings_.group, ended);
  keeper_->await_claims(lanes);
  if (!lost) commit(true);
  leave_other_logs(lanes, lost);
  keeper_->flush(lanes);
  give_up(lanes);
  shared_->scheduler.close(lanes);
  for (const auto& at : ended) logs_.released(at);
}

/// This process lives, so the next owners of these lanes need not suspect that a message has killed it. A handler that
/// outlasts a rebalance may still do so: its trial is renewed. At the shutdown, the process ends before its handlers.
void Engine::give_up(const std::vector<LanePtr>& lanes) {
  std::vector<ports::Trials::Release> released;
  shared_->scheduler.locked([&] {
    for (const auto& lane : lanes) {
      const OwnedPartition& place = lane->place;
      const bool admitted = place.fence || !lane->topic.needs_store();
      if (!place.guard || !admitted) continue;
      const auto position = std::max(lane->lane.position(), lane->start);
      // A handler that outlasts drain_timeout has killed no process. But nothing is proved of its message, and a full
      // release would wait for its transaction.
      const bool runs = lane->lane.running() > 0;
      auto& one = released.emplace_back(ports::Trials::Release{
          .fence = *place.guard, .is_proved = !runs && (!place.suspicion || position >= place.suspicion->until)});
      if (!runs || !at_work_) continue;
      one.runs_for = outlasting_->add(lane, *place.guard);
    }
  });
  if (released.empty()) return;
  try {
    trials_->release(released);
  } catch (const std::exception& e) {
    run_log_->info(
        std::string(
            "the release of the partitions could not be recorded, so their next owners proceed as after a crash: ") +
        e.what());
  }
}

void Engine::end_pending_completions() const {
  for (const auto& topic : shared_->topics) {
    if (const auto& claims = topic->runner.services().claims) claims->pending().end();
  }
}

void Engine::shut_down() {
  at_work_ = false;
  run_log_->info("stopping: no new handlers, waiting for those that run");
  const auto lanes = shared_->scheduler.lanes();
  release(lanes, false);
  if (lanes.empty() && outlasting_) outlasting_->end(lanes);
  if (outlasting_) outlasting_->retry_ends();
  reporter_->leave_kafka();
  consumer_->close();
  shared_->engine = nullptr;
  shared_->waker.point_to(nullptr);
  keeper_->stop();
  shared_->scheduler.stop();
  for (auto& worker : workers_) {
    // A worker whose handler does not return is left behind: the process is about to end, and a thread cannot be
    // stopped from outside.
    if (shared_->scheduler.locked([this] { return shared_->scheduler.all_idle_unlocked(); })) worker.join();
    else worker.detach();
  }
  workers_.clear();
  run_log_->info("stopped");
}

}  // namespace turnstile::detail
