#include "turnstile/poll_loop.hpp"

#include <algorithm>

#include "delivery/recorded_trials.hpp"
#include "engine/end_bound.hpp"
#include "engine/overdue.hpp"
#include "engine/poll_loop_state.hpp"
#include "permits/permit_seat.hpp"
#include "turnstile/error.hpp"

namespace turnstile::detail {

namespace {

/// How often the watermark of a partition is written.
constexpr std::chrono::milliseconds kFlush{1'000};

}  // namespace

void PollLoopState::build() {
  run_log = open_run_log(spec);
  if (spec.backends.serve)
    run_log->warn(
        Code::admin_unavailable,
        "[admin] listen has no effect: a PollLoop has no admin endpoint. For metrics, observe the topics with "
        "turnstile/prometheus/metrics.hpp, and expose them from the program");
  relay = make_relay(spec, run_log);
  auto built_topics = build_topics(spec, run_log, true, bell_of(relay));
  auto kept = retained(built_topics);
  auto producers = numbering_producers(built_topics);
  const bool stores = need_store(built_topics);
  for (auto& topic : built_topics) {
    const std::string name = topic->runner.plan().topic;
    topics[name] = std::move(topic);
  }
  if (relay && stores) relay->start();
  stop.start_looking([this] {
    std::vector<std::stop_source> overdue;
    {
      const std::lock_guard lock(watching);
      for (const Running& run : running) {
        if (auto one = take_overdue(run.watch, run.plan, *run_log)) overdue.push_back(std::move(*one));
      }
    }
    for (auto& one : overdue) one.request_stop();
  });
  if (kept.empty() && !producers) return;
  purger = std::make_unique<Purger>(
      Purger::Settings{.purge = spec.config.consumer.purge, .producers = std::move(producers)}, std::move(kept),
      std::shared_ptr<ports::Retention>(spec.backends.store, &spec.backends.store->retention()), run_log);
}

/// The messages that were settled may have taken effect outside of a transaction, even if the database has no record of
/// them.
void PollLoopState::doubt(const TopicPartition& at, const TopicState& topic, const Doubt& more) {
  if (topic.runner.plan().mode != Mode::leased) return;
  Doubt& known = in_doubt[at];
  known.below = std::max(known.below, more.below);
  known.own = std::max(known.own, more.own);
}

void PollLoopState::forget_doubt_of_the_group(const TopicPartition& at) {
  const auto known = in_doubt.find(at);
  if (known == in_doubt.end()) return;
  known->second.below = known->second.own;
  if (known->second.below == 0) in_doubt.erase(known);
}

/// Writes the watermark at intervals. Everything below it is in the database. If the database goes back to an earlier
/// time, the watermark tells where to read again.
void PollLoopState::settled(const Message& message, const OwnedPartition& place, const TopicState& topic) {
  if (!place.fence || topic.fails_open()) return;
  const ports::WatermarkUpdate update{*place.fence, message.offset() + 1};
  {
    const std::lock_guard lock(mutex);
    const auto doubted = in_doubt.find(place.at);
    if (doubted != in_doubt.end() && message.offset() >= doubted->second.below) in_doubt.erase(doubted);
    const auto unsettled = dropped.find(place.at);
    if (unsettled != dropped.end() && message.offset() >= unsettled->second) dropped.erase(unsettled);
    Progress& now = progress[place.at];
    now.settled = std::max(now.settled.value_or(0), update.watermark);
    if (std::chrono::steady_clock::now() < now.next_flush) return;
    now.next_flush = std::chrono::steady_clock::now() + kFlush;
  }
  try {
    spec.backends.store->partitions().advance_watermarks(
        {&update, 1});  // under another fence this does nothing, and the next message reports it
  } catch (const std::exception& e) {
    run_log->debug(place.at, topic.runner.plan().handler, message.offset(),
                   std::string("its watermark was not written, it lags until the next time: ") + e.what());
  }
}

/// The number of the attempt that is about to start.
int PollLoopState::attempt_of(const Message& message, const OwnedPartition& place) {
  const int next = place.suspicion ? 1 + place.suspicion->deaths(message.offset()) : 1;
  const std::lock_guard lock(mutex);
  const auto known = attempts.find(place.at);
  if (known == attempts.end()) return next;
  const auto kept = known->second.find(message.offset());
  return kept == known->second.end() ? next : std::max(next, kept->second);
}

void PollLoopState::keep_attempt(const Message& message, const OwnedPartition& place, int attempt) {
  const std::lock_guard lock(mutex);
  attempts[place.at][message.offset()] = attempt;
}

void PollLoopState::forget_attempts(const Message& message, const OwnedPartition& place) {
  const std::lock_guard lock(mutex);
  const auto known = attempts.find(place.at);
  if (known == attempts.end()) return;
  known->second.erase(message.offset());
  if (known->second.empty()) attempts.erase(known);
}

void PollLoopState::ran(const OwnedPartition& place) {
  if (!place.suspicion) return;
  const std::lock_guard lock(mutex);
  const auto left = unproved.find(place.at);
  if (left == unproved.end() || --left->second > 0) return;
  unproved.erase(left);
  if (const auto mine = places.find(place.at); mine != places.end()) mine->second.suspicion = nullptr;
}

/// The first call after ReadAgain means that the caller has sought the partition. The first call after Fenced may mean
/// that too. Any other call means that it was revoked.
void PollLoopState::revoked(const TopicPartition& at) {
  {
    const std::lock_guard lock(mutex);
    if (read_again.erase(at) == 0) {
      gone_back.erase(at);
      attempts.erase(at);
      const bool may_be_sought = dropped.erase(at) > 0;
      if (!may_be_sought) forget_doubt_of_the_group(at);
    }
  }
  release({&at, 1});
  if (!is_built) return;
  // In the other modes, the next fence shows that the partition may have had other owners since, or has another log.
  if (const auto topic = topics.find(at.topic); topic != topics.end() && !topic->second->needs_store())
    topic->second->runner.forget(at);
}

/// How long a handler of the partition may still run, on another thread. Absent if none runs.
std::optional<std::chrono::milliseconds> PollLoopState::runs_for(const TopicPartition& at) {
  const std::lock_guard lock(watching);
  const auto found = std::ranges::find_if(running, [&](const Running& run) { return run.at == at; });
  return found == running.end() ? std::nullopt : std::optional(found->plan.handler_timeout);
}

/// This process lives, so the next owners of these partitions need not suspect that a message has killed it. A handler
/// that still runs may do so later.
void PollLoopState::release(std::span<const TopicPartition> partitions) {
  std::vector<ports::Trials::Release> released;
  std::vector<ports::WatermarkUpdate> watermarks;
  {
    const std::lock_guard lock(mutex);
    for (const TopicPartition& at : partitions) {
      const auto known = progress.extract(at);
      const auto mine = places.find(at);
      if (mine == places.end()) continue;
      if (known && known.mapped().settled && mine->second.fence)
        watermarks.push_back({*mine->second.fence, *known.mapped().settled});
      if (mine->second.guard) {
        const auto time = runs_for(at);
        released.push_back({*mine->second.guard, mine->second.suspicion == nullptr && !time, time});
      }
      places.erase(mine);
      unproved.erase(at);
    }
  }
  if (released.empty()) return;
  if (!topics.empty()) {
    if (const auto& trials = topics.begin()->second->runner.services().trials) trials->retry();
  }
  try {
    if (!watermarks.empty()) spec.backends.store->partitions().advance_watermarks(watermarks);
    spec.backends.store->trials()->release(released);
  } catch (const std::exception& e) {
    run_log->info(
        std::string(
            "the release of the partitions could not be recorded, so their next owners proceed as after a crash: ") +
        e.what());
  }
}

/// A message that ran when a process died runs alone, so that no other message dies with it or becomes a suspect.
UnitResult PollLoopState::run(TopicState& topic, const Work& work, const OwnedPartition& place, RunState& watch) {
  const bool is_suspect = place.suspicion && place.suspicion->is_suspect(work.message->offset());
  if (const auto& trials = topic.runner.services().trials) trials->retry();
  const QuietRoom::Stay stay(quiet, watch, topic.runner.plan().handler_timeout, is_suspect);
  auto session = topic.needs_store() ? borrow() : nullptr;
  auto result = topic.runner.run({&work, 1}, place, session.get(), watch, stay.counts());
  if (session) give_back(std::move(session));
  return result;
}

std::unique_ptr<ports::InboxSession> PollLoopState::borrow() {
  {
    const std::lock_guard lock(mutex);
    if (!sessions.empty()) {
      auto session = std::move(sessions.back());
      sessions.pop_back();
      return session;
    }
  }
  return spec.backends.store->open_session();
}

void PollLoopState::give_back(std::unique_ptr<ports::InboxSession> session) {
  const std::lock_guard lock(mutex);
  sessions.push_back(std::move(session));
}

}  // namespace turnstile::detail

namespace turnstile {

namespace {

/// Waits for a permit on the caller's thread; the engine uses its queues instead. Empty once `stop` is set. Throws
/// Halted.
Permit wait_for_permit(const detail::TopicState& topic, const ports::Limiters& limiters, const std::stop_token& stop) {
  ports::Limiter& limiter = *topic.limiter;
  if (auto permit = limiter.try_acquire_fairly(1)) return permit;
  const auto asked_at = std::chrono::steady_clock::now();
  const auto seat = std::make_shared<detail::PermitSeat>();
  const std::stop_callback leaves(stop, [&seat] { seat->leave(); });
  auto waited = seat->wait(limiter, limiters, 1, Priority::normal, std::chrono::steady_clock::time_point::max());
  if (!waited.permit && !waited.why_halted.empty())
    throw Halted(Code::halted, "limiter '" + limiter.name() + "': " + waited.why_halted);
  if (waited.permit) topic.tell_of_permit(std::chrono::steady_clock::now() - asked_at);
  return std::move(waited.permit);
}

Settled what_became(const BatchReport& counts) {
  if (counts.dead > 0) return Settled::dead_letter;
  if (counts.deferred > 0) return Settled::deferred;
  if (counts.duplicates > 0) return Settled::duplicate;
  return counts.skipped > 0 ? Settled::skipped : Settled::done;
}

}  // namespace

PollLoop::PollLoop(Config config, Backends backends) : state_(std::make_unique<detail::PollLoopState>()) {
  state_->spec.config = std::move(config);
  state_->spec.backends = std::move(backends);
  if (!state_->spec.backends.limiters) state_->spec.backends.limiters = make_local_limiters();
  for (const auto& observer : state_->spec.backends.observers) state_->spec.observers.add(observer);
  state_->spec.tracer = state_->spec.backends.tracer;
}

PollLoop::~PollLoop() {
  const std::atomic<int> stop{2};
  const detail::EndBound bound(state_->spec.backends.store, stop, {});
  std::vector<TopicPartition> all;
  for (const auto& [at, place] : state_->places) all.push_back(at);
  state_->release(all);
  if (state_->relay) state_->relay->stop();
  state_.reset();  // within the bound: its purger may be waiting for the store
}

PollLoop& PollLoop::topic(const std::string& name, Pipeline pipeline) {
  state_->spec.topics.emplace_back(name, std::move(pipeline));
  return *this;
}

PollLoop& PollLoop::logger(std::shared_ptr<spdlog::logger> logger) {
  detail::log_through(state_->spec, std::move(logger));
  return *this;
}

Settled PollLoop::handle(const Message& message) try {
  const auto throw_stopped = [&message] {
    throw Stopped(where(message) + ": not handled: stop() was called; do not commit it, it comes again");
  };
  if (state_->stop.is_requested()) throw_stopped();
  if (!state_->is_built) {
    const std::lock_guard lock(state_->building);
    if (!state_->is_built) state_->build();
    state_->is_built = true;
  }
  const auto found = state_->topics.find(message.topic());
  if (found == state_->topics.end()) {
    throw ConfigError({where(message) + ": this loop has no handler for the topic; add it with topic()"});
  }
  detail::TopicState& topic = *found->second;
  const detail::OwnedPartition place = [&] {
    try {
      return state_->place_of(message, topic);
    } catch (const Fenced& e) {
      state_->throw_fenced(message, e.what());
    }
  }();
  const std::stop_token stop = state_->stop.token();
  detail::RunState watch;
  const detail::PollLoopState::Watched watched(*state_, {watch, topic.runner.plan(), place.at});
  detail::Work work{&message, 0, state_->attempt_of(message, place)};
  for (;;) {
    if (stop.stop_requested()) throw_stopped();
    detail::UnitResult result;
    {
      watch.reset();
      const Permit permit = topic.limiter ? wait_for_permit(topic, *state_->spec.backends.limiters, stop) : Permit{};
      if (topic.limiter && !permit) throw_stopped();
      const std::stop_callback on_stop(stop, [&watch] { watch.cancel().request_stop(); });
      const std::stop_callback on_lost_permit(permit.lost(), [&watch] { watch.cancel().request_stop(); });
      watch.under(permit);
      result = state_->run(topic, work, place, watch);
    }
    const detail::Verdict& verdict = result.verdicts.front();
    const bool has_failed = verdict.kind == detail::Verdict::Kind::retry && verdict.attempt > work.attempt;
    if (has_failed) state_->keep_attempt(message, place, work.attempt = verdict.attempt);
    if (result.end == detail::UnitResult::End::fenced) {
      try {
        state_->fenced(place, topic, message.offset());
      } catch (const Fenced& e) {
        result.why = e.what();
      }
      state_->throw_fenced(message, result.why);
    }
    if (result.end == detail::UnitResult::End::broken) throw TransactionEnded(result.why);
    if (result.end == detail::UnitResult::End::store_unavailable)
      throw StoreUnavailable(where(message) + ": " + result.why);
    if (verdict.kind == detail::Verdict::Kind::settled) {
      if (work.attempt > 1) state_->forget_attempts(message, place);
      state_->settled(message, place, topic);
      if (result.counts.duplicates == 0) state_->ran(place);
      if (result.raises) {
        throw Duplicate(where(message) + ": its id was seen before by handler '" + topic.runner.plan().handler + "'");
      }
      return what_became(result.counts);
    }
    if (result.stopped) throw Halted(Code::too_many_dead_in_a_row, where(message) + ": " + result.why);
    if (verdict.kind == detail::Verdict::Kind::retry && !has_failed && result.refused) {
      if (result.row_waits) {
        throw StoreUnavailable(where(message) +
                               ": the message is dead and the row of its dead letter was not written: " + result.why);
      }
      throw BrokerError(Code::dead_letter_refused,
                        where(message) + ": the message is dead and its dead letter was refused: " + result.why);
    }
    detail::StopFlag::sleep(verdict.delay, stop);  // outside the transaction and without a permit
  }
} catch (const StoreBusy& e) {
  throw StoreUnavailable(Code::store_busy, where(message) + ": nothing was decided, handle it again: " + e.what());
}

void PollLoop::stop() noexcept { state_->stop.request(); }

/// As a Consumer commits: Kafka's offset tells a later owner which messages were settled. That owner starts at the
/// database's watermark in any case.
bool PollLoop::may_commit(const TopicPartitionOffset& position) const {
  const std::lock_guard lock(state_->mutex);
  const auto doubted = state_->in_doubt.find(position.at);
  return doubted == state_->in_doubt.end() || position.offset >= doubted->second.below;
}

void PollLoop::revoked(const TopicPartition& partition) { state_->revoked(partition); }

}  // namespace turnstile
