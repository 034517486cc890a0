#include "engine/engine.hpp"

#include <algorithm>

#include "engine/end_bound.hpp"
#include "engine/engine_shared.hpp"
#include "engine/setup.hpp"
#include "support/failpoint.hpp"
#include "turnstile/error.hpp"

namespace turnstile {

namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

/// stop() only sets a flag, so that a signal handler may call it. This is the longest time until the flag is seen.
constexpr milliseconds kPollWait{100};
/// How many records are taken from a partition's queue at a time.
constexpr std::size_t kTake = 1'000;
/// The longest wait for the broker within a rebalance: well below any session timeout.
constexpr milliseconds kBrokerWait{5'000};
/// The longest wait after a call without an answer, and the pause after it. Nothing is polled while it waits.
constexpr milliseconds kBrokerWaitAgain{500}, kBrokerRest{5'000};

/// The whole process must stop.
struct HandlerRenumbered : Error {
  explicit HandlerRenumbered(const std::string& message) : Error(Code::store_rewound, message) {}
};

}  // namespace

namespace {

/// The loop of a worker thread, until the scheduler ends it.
void work(Scheduler& scheduler, WorkerSlot& slot, Store* store) {
  std::unique_ptr<InboxSession> session;
  Unit unit;
  while (scheduler.next(unit, slot)) {
    TURNSTILE_FAILPOINT("after-permit");
    UnitResult result;
    try {
      TopicState& topic = unit.lane->topic;
      const std::stop_callback on_lost_permit(unit.permit.lost(), [&slot] { slot.watch.cancel(); });
      slot.watch.under(unit.permit);
      if (topic.needs_store() && !session) session = store->open_session();
      result = unit.look_up     ? topic.runner.look_up(unit.works, unit.lane->place, *session)
               : unit.unclaimed ? topic.runner.run_unclaimed(unit.works, unit.lane->place, slot.watch)
                                : topic.runner.run(unit.works, unit.lane->place, session.get(), slot.watch, unit.alone);
    } catch (const std::exception& e) {
      result.verdicts.assign(unit.works.size(), Verdict{});
      result.end = UnitResult::End::store_away;
      result.why = e.what();
    }
    scheduler.finish(unit, std::move(result), slot);
  }
}

}  // namespace

Engine::Engine(EngineSettings settings, Broker& broker, std::shared_ptr<Store> store,
               std::shared_ptr<Limiters> limiters, std::shared_ptr<const RunLog> run_log)
    : settings_(std::move(settings)),
      store_(std::move(store)),
      trials_(store_ ? store_->trials() : nullptr),
      limiters_(std::move(limiters)),
      run_log_(std::move(run_log)),
      waker_(std::make_shared<Waker>()),
      shared_(std::make_shared<Shared>(Window{settings_.consumer.window, settings_.consumer.window_bytes}, run_log_,
                                       [waker = waker_] { waker->wake(); })),
      consumer_(broker.open_consumer()) {
  waker_->point_to(consumer_.get());
}

Engine::~Engine() {
  waker_->point_to(nullptr);
  settings_.health->ask({});
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
  start_workers();
  PartitionKeeper::Calls calls;
  calls.claimed = [this](LanePtr lane, PartitionClaim claim) {
    {
      const std::lock_guard lock(shared_->mutex);
      shared_->late_claims.emplace_back(std::move(lane), std::move(claim));
    }
    consumer_->wake();
  };
  keeper_ =
      std::make_unique<PartitionKeeper>(PartitionKeeper::Settings{.group = settings_.group,
                                                                  .stall_after = settings_.consumer.stall_after,
                                                                  .lock_timeout = settings_.lock_timeout,
                                                                  .limiters = limiters_,
                                                                  .purge = settings_.consumer.purge,
                                                                  .retained = retained(shared_->topics),
                                                                  .producers = numbering_producers(shared_->topics)},
                                        shared_->scheduler, store_, run_log_, std::move(calls));
  for (const auto& topic : shared_->topics) names_.push_back(topic->runner.plan().topic);
  consumer_->hurry_when([&stop] { return stop.load(std::memory_order_relaxed) > 1; });
  consumer_->subscribe(names_, *this);
  at_work_ = true;
  count_partitions(0);
  settings_.health->ask([this](Health& health) { describe(health); });
  std::string halted;
  try {
    halted = poll_until(stop);
  } catch (const std::exception& e) {
    // Before the waits of an orderly shutdown, which may be long: the log should first tell why.
    run_log_->error(code_of(e), std::string("the consumer ends: ") + e.what());
    settings_.health->set(Health::State::stopping);
    shut_down();
    throw;
  }
  if (!halted.empty()) return halt(halted);
  settings_.health->set(Health::State::stopping);
  shut_down();
}

/// Why it cannot continue. Empty: it was stopped.
std::string Engine::poll_until(const std::atomic<int>& stop) {
  while (stop.load(std::memory_order_relaxed) == 0) {
    consumer_->poll(kPollWait);
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
    // Continue until the queue is empty (then the consumer wakes this thread for new records) or the lane is full (then
    // the scheduler wakes it when there is room). If it stopped anywhere else, it would sleep beside records that are
    // ready.
    std::size_t taken = 0;
    for (std::size_t room; (room = shared_->scheduler.room(*lane)) > 0;) {
      auto block = take(lane, std::min(room, kTake));
      if (!block) {
        pass_gap(*lane);
        break;
      }
      TURNSTILE_FAILPOINT("after-poll");
      taken += block->messages().size();
      shared_->scheduler.feed(*lane, std::move(block));
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
  consumer_->commit(positions, wait);
}

void Engine::on_commit_end(std::span<const TopicPartitionOffset> offsets, bool committed) {
  for (const auto& offset : offsets) {
    shared_->scheduler.commit_ended(offset, committed);
    if (committed) logs_.has_offset(offset.at);
  }
}

// --- the assignment --------------------------------------------------------------------------------------------------

/// Null for a topic without a handler.
TopicState* Engine::topic_of(const TopicPartition& at) const {
  const auto topic = std::find_if(shared_->topics.begin(), shared_->topics.end(),
                                  [&](const auto& t) { return t->runner.plan().topic == at.topic; });
  return topic == shared_->topics.end() ? nullptr : topic->get();
}

std::vector<TopicPartitionOffset> Engine::on_assigned(std::span<const TopicPartition> partitions) {
  std::vector<TopicPartition> to_claim;
  std::vector<LanePtr> unfenced;
  std::map<TopicPartition, LanePtr> claiming;
  for (const auto& at : partitions) {
    TopicState* topic = topic_of(at);
    if (topic == nullptr) continue;
    auto lane = std::make_shared<LaneState>(*topic, OwnedPartition{.at = at, .fence = {}});
    logs_.assigned(at);
    if (topic->needs_store()) {
      lane->phase = LaneState::Phase::claiming;
      lane->claim_at = SteadyTime::max();  // not for the keeper yet: a second claim would fence the claim made below
      to_claim.push_back(at);
      claiming[at] = lane;
    } else {
      unfenced.push_back(lane);
      continue;
    }
    shared_->scheduler.open(std::move(lane));
  }
  guard(unfenced);
  for (auto& lane : unfenced) {
    limiters_->on_claimed(settings_.group, {}, lane->place.at, Epoch{});
    lane->topic.runner.services().observers.tell(&Observer::on_assigned, lane->place.at, Epoch{});
    shared_->scheduler.open(std::move(lane));
  }
  run_log_->info("assigned " + std::to_string(partitions.size()) + " partitions");
  count_partitions(partitions_ + partitions.size());
  std::vector<TopicPartitionOffset> starts;
  if (to_claim.empty()) {
    limiters_->wait_until_claimed();
    return starts;
  }
  milliseconds patience = kBrokerWait;
  const auto begin = [&](const PartitionClaim& claim) {
    const LanePtr& lane = claiming.at(claim.at);
    const OwnedPartition place = place_of(*lane, claim, patience);
    if (lane->start) starts.push_back({claim.at, *lane->start});
    shared_->scheduler.admit(*lane, place);
    limiters_->on_claimed(settings_.group, claim.store, claim.at, claim.fence.epoch);
    lane->topic.runner.services().observers.tell(&Observer::on_assigned, claim.at, claim.fence.epoch);
  };
  try {
    for (const auto& claim : store_->partitions().claim_partitions(settings_.group, to_claim, settings_.lock_timeout)) {
      try {
        begin(claim);
      } catch (const BrokerError& e) {  // the others may have a leader
        patience = kBrokerWaitAgain;
        run_log_->warn(Code::partition_start_unknown, claim.at,
                       std::string("the offset to start at could not be determined; retrying: ") + e.what());
      }
    }
  } catch (const StoreBusy& e) {
    run_log_->info(std::string("waiting for the last owner's transaction to end before its partitions are read: ") +
                   e.what());
  } catch (const std::exception& e) {
    shared_->scheduler.store_failed(e.what());  // the keeper claims them when the database is available again
  }
  shared_->scheduler.locked([&] {
    for (const auto& [at, lane] : claiming) lane->claim_at = {};
  });
  limiters_->wait_until_claimed();  // no message of them has been read yet
  return starts;
}

/// Where to start so that no message is missed. The start is the lower of Kafka's committed offset and the database's
/// watermark, but not below the start of the log. A topic that continues without the database starts at Kafka's offset,
/// because its watermark did not advance.
/// If the database went back to a time before its first watermark of the partition, it knows nothing. Then the start is
/// where the group began to read it or, if this process does not know that, the beginning of the topic. Absent: as
/// Kafka tells.
std::optional<Offset> Engine::start_of(LaneState& lane, const PartitionClaim& claim, OwnedPartition& place,
                                       milliseconds wait) {
  const TopicState& topic = lane.topic;
  const auto done = std::max(claim.watermark, claim.progress);  // absent is the lowest value
  const bool suspect = logs_.suspects(claim.at);
  if (!done && !lane.before && !suspect) return std::nullopt;
  auto known = ask_kafka(claim.at, wait);
  known.done = done;
  const auto verdict = logs_.judge(claim.at, known);
  const auto other = act_on(verdict, topic, place, known);
  logs_.settle(claim.at, verdict);
  if (verdict.kind != LogWatch::Verdict::Kind::recreated) {
    lane.committed = known.committed;
    if (known.committed) logs_.has_offset(claim.at);
  }
  // Mode leased: records of another log are not in doubt, at any offset.
  if (other) return other;
  const auto& committed = known.committed;
  if (!claim.watermark && lane.before) {
    const Offset start = std::max(lane.before->first.value_or(known.first), known.first);
    run_log_->warn(
        Code::store_rewound, claim.at,
        "the database went back to a time before its first watermark of the partition; reading again from offset " +
            std::to_string(start));
    // At once, because a process that takes over later knows only the database.
    const WatermarkUpdate update{claim.fence, start};
    if (store_->partitions().advance_watermarks({&update, 1}).front() != WatermarkState::moved)
      throw Fenced(to_string(claim.at) + ": it was claimed by another member meanwhile");
    mark_in_doubt(lane, committed, start, place);
    return start;
  }
  if (!claim.watermark && committed) return not_below(claim.at, *committed, known);
  if (!claim.watermark) return suspect ? std::optional(known.first) : std::nullopt;
  Offset start = committed && (topic.fails_open() || *committed < *claim.watermark) ? *committed : *claim.watermark;
  if (!committed) {
    // Either the group had no members for a long time, and Kafka has deleted its offsets, or the topic was recreated.
    // In both cases the records' own ids show which of them have taken effect.
    if (!topic.runner.plan().knows_by_offset()) start = known.first;
    run_log_->warn(Code::group_offset_missing, claim.at,
                   "Kafka has no offset of the group, and the database has settled the partition up to " +
                       std::to_string(*claim.watermark) + "; reading it from offset " + std::to_string(start) +
                       (start < *claim.watermark
                            ? ": messages that have taken effect are recognized by their ids, and do not run again"
                            : ". If the topic was deleted and created again, its records below that are not read"));
  } else if (start < *committed) {
    run_log_->info(claim.at, "starting at the database's watermark " + std::to_string(start) +
                                 ", below Kafka's offset " + std::to_string(*committed));
  } else if (*committed < *claim.watermark) {
    run_log_->info(
        claim.at,
        "starting at Kafka's offset " + std::to_string(*committed) + ", below the database's watermark " +
            std::to_string(*claim.watermark) +
            " (the group's offset was lowered, or not committed before a crash): the records between are read "
            "again, and those that took effect are duplicates");
  }
  start = not_below(claim.at, start, known);
  mark_in_doubt(lane, committed, start, place);
  return start;
}

/// Mode leased: the messages that are read again were settled before. Either the lane before this one settled them or,
/// below Kafka's offset, the group did.
void Engine::mark_in_doubt(const LaneState& lane, const std::optional<Offset>& committed, Offset start,
                           OwnedPartition& place) {
  if (lane.topic.runner.plan().mode != Mode::leased || lane.topic.fails_open()) return;
  SettledOffsets settled = lane.before ? lane.before->settled : SettledOffsets{};
  settled.add(SettledOffsets{committed.value_or(0), {}});
  if (settled.any_from(start)) place.in_doubt = std::make_shared<const SettledOffsets>(std::move(settled));
}

/// Decides where the partition is read from, and collects its data.
OwnedPartition Engine::place_of(LaneState& lane, const PartitionClaim& claim, milliseconds wait) {
  OwnedPartition place{claim.at, claim.fence, claim.incarnation};
  if (lane.before) expect_same_handler(lane);
  lane.start = start_of(lane, claim, place, wait);
  lane.flushed = place.incarnation == claim.incarnation && claim.watermark ? claim.watermark : lane.start;
  lane.topic.runner.find_dead(place, lane.start);
  watch_over(place, lane.place, claim, lane.start, wait);
  return place;
}

/// Finds messages that may have killed the last owner, before they kill other processes. `before`: the partition as
/// this process owned it until now, if it did. `start`: nothing below it is read; absent: unknown.
void Engine::watch_over(OwnedPartition& place, const OwnedPartition& before, const PartitionClaim& claim,
                        std::optional<Offset> start, milliseconds wait) {
  place.guard = claim.fence;
  if (claim.is_clean) return;
  const auto& own = before.guard;
  if (own && own->slot == claim.fence.slot && own->epoch.value + 1 == claim.fence.epoch.value) {
    place.suspicion = before.suspicion;  // no other process has had it in the meantime, and this process lives
    return;
  }
  const auto bounds = consumer_->bounds(claim.at, wait);
  place.suspicion =
      suspect(*trials_, claim, start.value_or(0), bounds ? std::optional(bounds->second) : std::nullopt, *run_log_);
}

/// Mode at_least_once needs no store. If the program has a store, it finds messages that kill their process there too.
void Engine::guard(const std::vector<LanePtr>& lanes) {
  if (!store_ || lanes.empty()) return;
  std::vector<TopicPartition> partitions;
  for (const auto& lane : lanes) partitions.push_back(lane->place.at);
  try {
    const auto claims = store_->partitions().claim_partitions(settings_.group, partitions, settings_.lock_timeout);
    for (std::size_t i = 0; i < lanes.size(); ++i) {
      std::optional<Offset> start;
      if (!claims[i].is_clean) {
        try {
          start = consumer_->committed({&claims[i].at, 1}, kBrokerWaitAgain).front();
        } catch (const BrokerError&) {  // then no suspect is dropped
        }
      }
      watch_over(lanes[i]->place, OwnedPartition{.at = claims[i].at, .fence = {}}, claims[i], start, kBrokerWaitAgain);
      if (const auto& suspicion = lanes[i]->place.suspicion) lanes[i]->lane.single_out(suspicion->suspects);
    }
  } catch (const std::exception& e) {
    run_log_->info(
        "topics in mode at_least_once go on without the database, which finds messages that kill their process: " +
        std::string(e.what()));
  }
}

/// Nothing of these lanes runs any more: their next owners need not suspect that a message has killed this process.
void Engine::give_up(const std::vector<LanePtr>& lanes) {
  std::vector<Trials::Release> released;
  shared_->scheduler.locked([&] {
    for (const auto& lane : lanes) {
      const OwnedPartition& place = lane->place;
      const bool admitted = place.fence || !lane->topic.needs_store();
      if (!place.guard || !admitted || lane->lane.running() > 0) continue;
      const auto position = std::max(lane->lane.position(), lane->start);
      released.push_back({*place.guard, !place.suspicion || position >= place.suspicion->until});
    }
  });
  if (released.empty()) return;
  try {
    trials_->release(released);
  } catch (const std::exception& e) {
    run_log_->info(
        std::string(
            "the partitions' release could not be recorded: their next owners are careful, as after a death: ") +
        e.what());
  }
}

/// A database that went back to an earlier time may have lost a handler's name. It may then have assigned its number to
/// another handler.
void Engine::expect_same_handler(const LaneState& lane) {
  const TopicRunner& runner = lane.topic.runner;
  const HandlerId now = store_->register_handler(runner.plan().handler);
  if (now == runner.handler()) return;
  throw HandlerRenumbered("handler '" + runner.plan().handler + "' of topic '" + runner.plan().topic +
                          "': its number in the database was " + std::to_string(runner.handler().value) + " and is " +
                          std::to_string(now.value) +
                          " since the database went back to an earlier time. The consumer stops; start it again");
}

/// The database has another history than when the partition was claimed (a restart, a failover to a replica, a backup),
/// or a lower watermark than before. The last commits may be lost. The watermark was written after the messages below
/// it, so all of those are there. The rest is read again. Nothing of the lane runs.
LanePtr Engine::begin_anew(const LanePtr& lane) {
  logs_.begin(lane->place.at);
  OwnedPartition place{.at = lane->place.at, .fence = {}};
  place.guard = lane->place.guard;
  place.suspicion = lane->place.suspicion;
  auto fresh = std::make_shared<LaneState>(lane->topic, std::move(place));
  fresh->phase = LaneState::Phase::claiming;
  fresh->claim_at = SteadyTime::max();  // it is claimed
  fresh->before = shared_->scheduler.locked([&] { return what_was_settled(*lane); });
  shared_->scheduler.close({&lane, 1});
  shared_->scheduler.open(fresh);
  return fresh;
}

void Engine::take_late_claims() {
  std::vector<std::pair<LanePtr, PartitionClaim>> late;
  {
    const std::lock_guard lock(shared_->mutex);
    late.swap(shared_->late_claims);
  }
  for (auto& [lane, claim] : late) {
    bool ours = false, untouched = false, changed = false;
    shared_->scheduler.locked([&, l = lane.get(), &late_claim = claim] {
      ours = l->phase == LaneState::Phase::claiming || l->phase == LaneState::Phase::fenced;
      untouched = l->phase == LaneState::Phase::claiming;
      changed =
          l->phase == LaneState::Phase::fenced &&
          (l->went_back || l->place.fence->history != late_claim.fence.history || late_claim.watermark < l->flushed);
      if (changed && l->topic.fails_open()) {
        changed = l->went_back = false;
        l->flushed = late_claim.watermark;
      }
    });
    if (!ours) continue;  // released in the meantime: its next owner claims it
    if (changed) {
      lane = begin_anew(lane);
      untouched = true;
    }
    try {
      OwnedPartition place{claim.at, claim.fence, claim.incarnation};
      if (untouched) {  // nothing was taken yet: go to the start of the partition
        place = place_of(*lane, claim, kBrokerWaitAgain);
        if (lane->start) consumer_->seek({claim.at, *lane->start});
      } else {
        lane->topic.runner.find_dead(place, lane->start);
        watch_over(place, lane->place, claim, lane->start, kBrokerWaitAgain);
      }
      limiters_->on_claimed(settings_.group, claim.store, claim.at, claim.fence.epoch);
      limiters_->wait_until_claimed();
      shared_->scheduler.admit(*lane, place);
      const std::string again = changed ? ", after the database had changed; reading again from offset " +
                                              std::to_string(lane->start.value_or(0))
                                        : "";
      run_log_->info(claim.at, "claimed, epoch " + std::to_string(claim.fence.epoch.value) + again);
      lane->topic.runner.services().observers.tell(&Observer::on_assigned, claim.at, claim.fence.epoch);
    } catch (const HandlerRenumbered&) {
      fatal_ = std::current_exception();
      return;
    } catch (const std::exception& e) {
      run_log_->warn(Code::partition_start_unknown, claim.at,
                     std::string("claimed, but the offset to start at could not be determined; retrying: ") + e.what());
      shared_->scheduler.locked([l = lane.get()] { l->claim_at = steady_clock::now() + kBrokerRest; });
    }
  }
}

void Engine::on_revoked(std::span<const TopicPartition> partitions, bool lost) {
  std::vector<LanePtr> lanes;
  for (const auto& lane : shared_->scheduler.lanes()) {
    if (std::find(partitions.begin(), partitions.end(), lane->place.at) != partitions.end()) lanes.push_back(lane);
  }
  release(lanes, lost);
  run_log_->info((lost ? "lost " : "revoked ") + std::to_string(partitions.size()) + " partitions");
  if (at_work_) count_partitions(partitions_ - std::min(partitions_, partitions.size()));
  for (const auto& at : partitions) {
    if (const TopicState* topic = topic_of(at)) topic->runner.services().observers.tell(&Observer::on_revoked, at);
  }
}

/// Stops starting handlers, waits for running ones, writes the watermarks, and releases the lanes.
void Engine::release(const std::vector<LanePtr>& lanes, bool lost) {
  if (lanes.empty()) return;
  const auto hurry = [this] { return stop_ != nullptr && stop_->load(std::memory_order_relaxed) > 1; };
  const auto deadline = steady_clock::now() + (lost ? milliseconds(0) : settings_.consumer.drain_timeout);
  if (!shared_->scheduler.drain(lanes, deadline, hurry)) {
    shared_->scheduler.cancel(lanes);
    const bool ended = shared_->scheduler.drain(lanes, steady_clock::now() + kGrace, [] { return false; });
    if (!ended) {
      run_log_->error(
          Code::handler_not_stopping,
          "handlers, or the transactions that they end with, still run " + std::to_string(kGrace.count()) +
              " ms after their stop_token was set. Their partitions are released; PostgreSQL refuses their "
              "transactions once another member has claimed the partitions. Have the handlers check their stop_token");
    }
  }
  std::vector<TopicPartition> ended;
  for (const auto& lane : lanes) {
    if (shared_->scheduler.locked([&] { return lane->lane.running() == 0; })) ended.push_back(lane->place.at);
  }
  limiters_->on_revoked(settings_.group, ended);
  keeper_->await_claims(lanes);
  if (!lost) commit(true);
  leave_other_logs(lanes);
  keeper_->flush(lanes);
  give_up(lanes);
  shared_->scheduler.close(lanes);
}

void Engine::shut_down() {
  at_work_ = false;
  run_log_->info("stopping: no new handlers, waiting for those that run");
  release(shared_->scheduler.lanes(), false);
  consumer_->close();
  waker_->point_to(nullptr);
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

}  // namespace turnstile
