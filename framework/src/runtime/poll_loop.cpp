#include "turnstile/poll_loop.hpp"

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

#include "runtime/setup.hpp"
#include "turnstile/error.hpp"

namespace turnstile {

namespace {

/// Waits on the caller's thread for what the engine does with its queues.
Permit wait_for_permit(Limiter& limiter) {
  struct Bell {
    std::mutex mutex;
    std::condition_variable rung;
    bool free = false;
  };
  for (;;) {
    if (auto permit = limiter.try_acquire()) return permit;
    const auto bell = std::make_shared<Bell>();  // shared: the limiter may ring after we have gone
    limiter.when_free([bell] {
      {
        const std::lock_guard lock(bell->mutex);
        bell->free = true;
      }
      bell->rung.notify_one();
    });
    std::unique_lock lock(bell->mutex);
    bell->rung.wait(lock, [&] { return bell->free; });
  }
}

/// How often the watermark of a partition is written.
constexpr std::chrono::milliseconds kFlush{1'000};

[[noreturn]] void throw_read_again(const TopicPartition& at, Offset from) {
  throw ReadAgain(
      to_string(at) +
          ": the database was restarted, failed over or restored, and may have lost what it had committed; seek "
          "the partition to offset " +
          std::to_string(from) + ", and call revoked()",
      {at, from});
}

Settled what_became(const BatchReport& counts) {
  if (counts.dead > 0) return Settled::dead_letter;
  if (counts.duplicates > 0) return Settled::duplicate;
  return counts.skipped > 0 ? Settled::skipped : Settled::done;
}

}  // namespace

struct PollLoop::State {
  Blueprint blueprint;
  std::once_flag built;
  std::shared_ptr<const Journal> journal;
  std::map<std::string, std::unique_ptr<TopicState>, std::less<>> topics;
  std::unique_ptr<Cleaner> cleaner;  // null without handlers that keep ids
  std::shared_ptr<Relay> relay;      // null without a broker or a store
  std::mutex mutex;                  // guards what follows
  std::map<TopicPartition, Place> places;
  /// Of a partition that was claimed: what was settled under its fence.
  struct Progress {
    Offset first = 0;                 ///< the first message
    std::optional<Offset> settled{};  ///< one past the last
    SteadyTime next_flush{};
  };
  std::map<TopicPartition, Progress> progress;
  std::map<TopicPartition, Offset> read_again;          ///< from where; until the caller has gone there
  std::map<TopicPartition, Offset> in_doubt;            ///< below which, when it has
  std::vector<std::unique_ptr<InboxSession>> sessions;  // idle ones

  void build();
  Place place_of(const Message& message, const TopicState& topic);
  PartitionClaim claim(const TopicPartition& at, const TopicState& topic);
  void settled(const Message& message, const Place& place, const TopicState& topic);
  void fenced(const Place& place, const TopicState& topic);
  void revoked(const TopicPartition& at);
  std::unique_ptr<InboxSession> borrow();
  void give_back(std::unique_ptr<InboxSession> session);
};

void PollLoop::State::build() {
  journal = open_journal(blueprint);
  relay = make_relay(blueprint, journal);
  const auto ring = [relay = relay] {
    if (relay) relay->ring();
  };
  auto built_topics = build_topics(blueprint, journal, true, ring);
  auto kept = retained(built_topics);
  auto producers = numbering_producers(built_topics);
  const bool stores = need_store(built_topics);
  for (auto& topic : built_topics) {
    const std::string name = topic->runner.plan().topic;
    topics[name] = std::move(topic);
  }
  if (relay && stores) relay->start();
  if (kept.empty() && !producers) return;
  cleaner = std::make_unique<Cleaner>(
      Cleaner::Settings{.purge = blueprint.config.consumer.purge, .producers = std::move(producers)}, std::move(kept),
      blueprint.backends.store, journal);
}

Place PollLoop::State::place_of(const Message& message, const TopicState& topic) {
  const TopicPartition at{std::string(message.topic()), message.partition()};
  if (!topic.needs_store()) return {.at = at, .fence = {}};
  const std::lock_guard lock(mutex);
  if (const auto it = read_again.find(at); it != read_again.end()) throw_read_again(at, it->second);
  if (const auto it = places.find(at); it != places.end()) return it->second;
  const PartitionClaim claimed = claim(at, topic);
  Place place{at, claimed.fence, claimed.incarnation};
  topic.runner.find_dead(place, std::nullopt);  // where its caller starts, the caller knows
  if (const auto it = in_doubt.find(at); it != in_doubt.end() && topic.runner.plan().mode == Mode::leased)
    place.in_doubt = std::make_shared<const SettledOffsets>(SettledOffsets{it->second});
  progress[at] = {.first = message.offset()};
  return places[at] = std::move(place);
}

/// Call with the mutex held.
PartitionClaim PollLoop::State::claim(const TopicPartition& at, const TopicState& topic) {
  try {
    return blueprint.backends.store
        ->claim_partitions(blueprint.config.group(), {&at, 1}, topic.runner.services().lock_timeout)
        .front();
  } catch (const StoreBusy& e) {
    throw StoreUnavailable(to_string(at) + ": a transaction of its last owner is still open: " + e.what());
  }
}

/// Writes the watermark now and then: whatever lies below it is in the database, so it says from where to read again if the database
/// should go back to an earlier time.
void PollLoop::State::settled(const Message& message, const Place& place, const TopicState& topic) {
  if (!place.fence || topic.fails_open()) return;
  const WatermarkUpdate update{*place.fence, message.offset() + 1};
  {
    const std::lock_guard lock(mutex);
    Progress& now = progress[place.at];
    now.settled = std::max(now.settled.value_or(0), update.watermark);
    if (std::chrono::steady_clock::now() < now.next_flush) return;
    now.next_flush = std::chrono::steady_clock::now() + kFlush;
  }
  try {
    blueprint.backends.store->advance_watermarks(
        {&update, 1});  // under another fence nothing is done, which the next message tells
  } catch (const std::exception& e) {
    journal->debug(place.at, topic.runner.plan().handler, message.offset(),
                   std::string("its watermark was not written, it lags until the next time: ") + e.what());
  }
}

/// Throws ReadAgain where it was not another member, but another history of the database.
void PollLoop::State::fenced(const Place& place, const TopicState& topic) {
  const std::lock_guard lock(mutex);
  const auto found = places.find(place.at);
  if (found == places.end() || found->second.fence != place.fence || topic.fails_open()) return;
  if (blueprint.backends.store->history() == place.fence->history) return;
  const PartitionClaim claimed = claim(place.at, topic);
  const Progress& known = progress[place.at];
  const Offset from = std::min(claimed.watermark.value_or(known.first), known.settled.value_or(known.first));
  if (known.settled) {
    Offset& doubted = in_doubt[place.at];
    doubted = std::max(doubted, *known.settled);
  }
  places.erase(found);
  read_again[place.at] = from;
  throw_read_again(place.at, from);
}

void PollLoop::State::revoked(const TopicPartition& at) {
  const std::lock_guard lock(mutex);
  places.erase(at);
  progress.erase(at);
  if (read_again.erase(at) == 0) in_doubt.erase(at);
}

std::unique_ptr<InboxSession> PollLoop::State::borrow() {
  {
    const std::lock_guard lock(mutex);
    if (!sessions.empty()) {
      auto session = std::move(sessions.back());
      sessions.pop_back();
      return session;
    }
  }
  return blueprint.backends.store->open_session();
}

void PollLoop::State::give_back(std::unique_ptr<InboxSession> session) {
  const std::lock_guard lock(mutex);
  sessions.push_back(std::move(session));
}

PollLoop::PollLoop(Config config, Backends backends) : state_(std::make_unique<State>()) {
  state_->blueprint.config = std::move(config);
  state_->blueprint.backends = std::move(backends);
  if (!state_->blueprint.backends.limiters) state_->blueprint.backends.limiters = make_local_limiters();
}

PollLoop::~PollLoop() {
  if (state_->relay) state_->relay->stop();
}

PollLoop& PollLoop::topic(const std::string& name, Pipeline pipeline) {
  state_->blueprint.topics.emplace_back(name, std::move(pipeline));
  return *this;
}

PollLoop& PollLoop::logger(std::shared_ptr<spdlog::logger> logger) {
  state_->blueprint.logger = std::move(logger);
  return *this;
}

Settled PollLoop::handle(const Message& message) {
  std::call_once(state_->built, [this] { state_->build(); });
  const auto found = state_->topics.find(message.topic());
  if (found == state_->topics.end()) {
    throw ConfigError({where(message) + ": this loop has no handler for the topic; add it with topic()"});
  }
  TopicState& topic = *found->second;
  const Place place = state_->place_of(message, topic);
  RunWatch watch;
  Work work{&message, 0, 1};
  for (;;) {
    UnitResult result;
    {
      watch.reset();
      const Permit permit = topic.limiter ? wait_for_permit(*topic.limiter) : Permit{};
      const std::stop_callback on_lost_permit(permit.lost(), [&watch] { watch.cancel(); });
      watch.under(permit);
      auto session = topic.needs_store() ? state_->borrow() : nullptr;
      result = topic.runner.run({&work, 1}, place, session.get(), watch);
      if (session) state_->give_back(std::move(session));
    }
    if (result.end == UnitResult::End::fenced) {
      state_->fenced(place, topic);
      revoked(place.at);
      throw Fenced(where(message) + ": " + result.why);
    }
    if (result.end == UnitResult::End::store_away) throw StoreUnavailable(where(message) + ": " + result.why);
    const Verdict& verdict = result.verdicts.front();
    if (verdict.kind == Verdict::Kind::settled) {
      state_->settled(message, place, topic);
      if (result.counts.duplicates > 0 && topic.runner.plan().duplicates == DuplicatePolicy::raise) {
        throw Duplicate(where(message) + ": its id was seen before by handler '" + topic.runner.plan().handler + "'");
      }
      return what_became(result.counts);
    }
    if (verdict.kind == Verdict::Kind::retry && verdict.attempt == work.attempt && result.refused) {
      throw BrokerError(where(message) + ": the message is dead and its dead letter was refused: " + result.why);
    }
    std::this_thread::sleep_for(verdict.delay);  // outside the transaction and without a permit
    work.attempt = verdict.attempt;
  }
}

void PollLoop::revoked(const TopicPartition& partition) { state_->revoked(partition); }

}  // namespace turnstile
