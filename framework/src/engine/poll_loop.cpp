#include "turnstile/poll_loop.hpp"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <stop_token>
#include <thread>

#include "engine/end_bound.hpp"
#include "engine/log_watch.hpp"
#include "engine/overdue.hpp"
#include "engine/setup.hpp"
#include "permits/permit_seat.hpp"
#include "turnstile/error.hpp"
#include "turnstile/ports/broker.hpp"

namespace turnstile {

namespace {

/// How soon what waits or runs learns of stop(), and a handler of the end of its handler_timeout.
constexpr std::chrono::milliseconds kLook{50};

/// stop() may come from a signal handler, which must not wake a thread: a thread of this looks for it.
class Stop {
 public:
  void request() noexcept { requested_.store(true, std::memory_order_release); }
  [[nodiscard]] bool is_requested() const noexcept { return requested_.load(std::memory_order_acquire); }
  /// Call once, before token() is used. `look`: what else that thread is to look at.
  void start_looking(std::function<void()> look) {
    thread_ = std::jthread([this, look = std::move(look)](const std::stop_token& end) {
      while (!end.stop_requested()) {
        if (is_requested()) source_.request_stop();
        look();
        sleep(kLook, end);
      }
    });
  }
  [[nodiscard]] std::stop_token token() const noexcept { return source_.get_token(); }
  /// Ends early once `stop` is set.
  static void sleep(std::chrono::milliseconds time, const std::stop_token& stop) {
    std::mutex mutex;
    std::condition_variable_any wake;
    std::unique_lock lock(mutex);
    wake.wait_for(lock, stop, time, [] { return false; });
  }

 private:
  static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler writes it");
  std::atomic<bool> requested_{false};
  std::stop_source source_;
  std::jthread thread_;
};

/// Waits on the caller's thread for what the engine does with its queues. Empty once `stop` is set. Throws Halted.
Permit wait_for_permit(Limiter& limiter, const Limiters& limiters, const std::stop_token& stop) {
  if (auto permit = limiter.try_acquire_fairly(1)) return permit;
  const auto seat = std::make_shared<PermitSeat>();
  const std::stop_callback leaves(stop, [&seat] { seat->leave(); });
  auto waited = seat->wait(limiter, limiters, 1, Priority::normal, std::chrono::steady_clock::time_point::max());
  if (!waited.permit && !waited.why_halted.empty())
    throw Halted("limiter '" + limiter.name() + "': " + waited.why_halted);
  return std::move(waited.permit);
}

/// How often the watermark of a partition is written.
constexpr std::chrono::milliseconds kFlush{1'000};

/// How long the broker may take to say where a log begins and ends.
constexpr std::chrono::seconds kKafkaWait{5};

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
  ConsumerSpec spec;
  std::once_flag built;
  std::shared_ptr<const RunLog> run_log;
  std::map<std::string, std::unique_ptr<TopicState>, std::less<>> topics;
  std::unique_ptr<Purger> purger;  // null without handlers that keep ids
  std::shared_ptr<Relay> relay;    // null without a broker or a store
  /// What runs on its caller's thread.
  struct Running {
    RunState& watch;
    const TopicPartition& at;
    const TopicPlan& plan;
  };
  std::mutex watching;         // guards `running`
  std::list<Running> running;  // of the handlers, for their handler_timeout
  Stop stop;                   // its thread looks at `running`
  std::mutex mutex;            // guards what follows
  std::map<TopicPartition, Place> places;
  /// Of a partition that was claimed: what was settled under its fence.
  struct Progress {
    Offset first = 0;                 ///< the first message
    Offset last = 0;                  ///< the one that came last
    std::optional<Offset> settled{};  ///< one past the last
    SteadyTime next_flush{};
  };
  std::map<TopicPartition, Progress> progress;
  /// From where. Until revoked() is called once, each message of the partition throws ReadAgain.
  std::map<TopicPartition, Offset> read_again;
  /// The watermark for which the caller was sent back; until its next message. By a second revoked() before that the seek means nothing
  /// any more: the partition was taken away, and comes back where Kafka says. The same where that message throws Fenced: it is dropped.
  std::map<TopicPartition, Offset> gone_back;
  /// Mode leased: below which the caller had settled everything when it was sent back. Until a message from there on is settled.
  std::map<TopicPartition, Offset> in_doubt;
  /// The first message that threw Fenced: the caller has dropped it, so what it hands in next says nothing of those from there on. Until
  /// one of them is settled, or the partition is taken away.
  std::map<TopicPartition, Offset> dropped;
  /// Which attempt is next, of messages that failed and that the caller is to handle again. Until they are settled, or taken away.
  std::map<TopicPartition, std::map<Offset, int>> attempts;
  std::map<TopicPartition, std::size_t> unproved;  ///< under suspicion: so many messages have to run until it is over
  std::vector<std::unique_ptr<InboxSession>> sessions;  // idle ones
  std::mutex door;                                      // to `quiet`: in the order of coming
  std::shared_mutex quiet;                              // shared: a message runs; exclusive: one runs alone

  void build();
  Place place_of(const Message& message, const TopicState& topic);
  PartitionClaim claim(const TopicPartition& at, const TopicState& topic);
  /// What this loop knows of a partition that it is about to claim.
  struct Known {
    Offset message = 0;                   ///< the one that came last
    Offset first = 0;                     ///< the first one
    std::optional<Offset> settled{};      ///< below it all is, as this loop saw it
    std::optional<Offset> another_log{};  ///< where another log begins that has replaced the one that was settled
    std::int32_t incarnation = 0;         ///< under which it owned the partition until now
  };
  struct Claimed {
    PartitionClaim claim;
    bool another_log = false;  ///< Kafka has another log under its name than the one that was settled
  };
  Claimed claim_from(const TopicPartition& at, const TopicState& topic, const Known& known);
  void begin_incarnation(PartitionClaim& claim, Offset first);
  std::optional<Offset> begin_of_another_log(const TopicPartition& at, const TopicState& topic, Offset message,
                                             Offset done) const;
  std::optional<Offset> has_gone_back(const TopicPartition& at, const TopicState& topic, Offset message);
  void forget_the_old_log(const TopicPartition& at);
  void settled(const Message& message, const Place& place, const TopicState& topic);
  void start_at_the_watermark(const Message& message, const TopicState& topic, const Claimed& claimed);
  void doubt(const TopicPartition& at, const TopicState& topic, Offset below);
  std::optional<Offset> begin_of_log(const TopicPartition& at) const;
  Offset not_below_the_log(const TopicPartition& at, Offset from, Offset message) const;
  int attempt_of(const Message& message, const Place& place);
  void keep_attempt(const Message& message, const Place& place, int attempt);
  void forget_attempts(const Message& message, const Place& place);
  void fenced(const Place& place, const TopicState& topic, Offset message);
  [[noreturn]] void throw_fenced(const Message& message, const std::string& why);
  void guard(Place& place, const PartitionClaim& claim, Offset message);
  void guard_unfenced(Place& place, const TopicState& topic, Offset message);
  void ran(const Place& place);
  void revoked(const TopicPartition& at);
  void release(std::span<const TopicPartition> partitions);
  UnitResult run(TopicState& topic, const Work& work, const Place& place, RunState& watch);
  /// While this lives, the loop's thread looks at it.
  class Watched {
   public:
    Watched(State& state, const Running& run) : state_(state) {
      const std::lock_guard lock(state.watching);
      mine_ = state.running.insert(state.running.end(), run);
    }
    ~Watched() {
      const std::lock_guard lock(state_.watching);
      state_.running.erase(mine_);
    }
    Watched(const Watched&) = delete;
    Watched& operator=(const Watched&) = delete;

   private:
    State& state_;
    std::list<Running>::iterator mine_;
  };
  std::unique_ptr<InboxSession> borrow();
  void give_back(std::unique_ptr<InboxSession> session);
};

void PollLoop::State::build() {
  run_log = open_run_log(spec);
  relay = make_relay(spec, run_log);
  const auto ring = [relay = relay] {
    if (relay) relay->ring();
  };
  auto built_topics = build_topics(spec, run_log, true, ring);
  auto kept = retained(built_topics);
  auto producers = numbering_producers(built_topics);
  const bool stores = need_store(built_topics);
  for (auto& topic : built_topics) {
    const std::string name = topic->runner.plan().topic;
    topics[name] = std::move(topic);
  }
  if (relay && stores) relay->start();
  stop.start_looking([this] {
    const std::lock_guard lock(watching);
    for (const Running& run : running) stop_if_overdue(run.watch, run.at, run.plan, *run_log);
  });
  if (kept.empty() && !producers) return;
  purger =
      std::make_unique<Purger>(Purger::Settings{.purge = spec.config.consumer.purge, .producers = std::move(producers)},
                               std::move(kept), spec.backends.store, run_log);
}

Place PollLoop::State::place_of(const Message& message, const TopicState& topic) {
  const TopicPartition at{std::string(message.topic()), message.partition()};
  if (!spec.backends.store) return {.at = at, .fence = {}};
  const std::lock_guard lock(mutex);
  if (const auto it = read_again.find(at); it != read_again.end()) throw_read_again(at, it->second);
  Known known{.message = message.offset(), .first = message.offset()};
  if (const auto it = places.find(at); it != places.end()) {
    known.another_log = has_gone_back(at, topic, message.offset());
    if (!known.another_log) return it->second;
    known.incarnation = it->second.incarnation;
    places.erase(it);
  }
  Place place{.at = at, .fence = {}};
  if (!topic.needs_store()) {
    guard_unfenced(place, topic, message.offset());
    return places[at] = std::move(place);
  }
  const Claimed claimed = topic.fails_open() ? Claimed{claim(at, topic)} : claim_from(at, topic, known);
  place.fence = claimed.claim.fence;
  place.incarnation = claimed.claim.incarnation;
  topic.runner.find_dead(place, std::nullopt);  // where its caller starts, the caller knows
  if (const auto it = in_doubt.find(at); it != in_doubt.end())
    place.in_doubt = std::make_shared<const SettledOffsets>(SettledOffsets{it->second});
  guard(place, claimed.claim, message.offset());
  progress[at] = {.first = message.offset(), .last = message.offset()};
  places[at] = place;
  if (!topic.fails_open()) start_at_the_watermark(message, topic, claimed);
  return place;
}

/// Call with the mutex held.
PartitionClaim PollLoop::State::claim(const TopicPartition& at, const TopicState& topic) {
  try {
    return spec.backends.store->claim_partitions(spec.config.group(), {&at, 1}, topic.runner.services().lock_timeout)
        .front();
  } catch (const StoreBusy& e) {
    throw StoreUnavailable(to_string(at) + ": a transaction of its last owner is still open: " + e.what());
  }
}

/// With a watermark, which is that of the first message where there was none: before anything is settled, so that nobody who settles a
/// later message than the first one passes it over. Another member may claim the partition before it is written, and may then have a
/// later first message. Offsets of another log than the one that was settled mean nothing there: its incarnation begins.
/// Call with the mutex held.
PollLoop::State::Claimed PollLoop::State::claim_from(const TopicPartition& at, const TopicState& topic,
                                                     const Known& known) {
  for (;;) {
    PartitionClaim claimed = claim(at, topic);
    if (claimed.incarnation < known.incarnation) {
      run_log->warn(at,
                    "the database went back to a time before it knew that the topic was recreated; reading again from "
                    "offset " +
                        std::to_string(known.first));
      begin_incarnation(claimed, known.first);
      return {claimed};
    }
    const auto done = std::max({claimed.watermark, claimed.progress, known.settled});  // nothing is less than any
    auto first = known.another_log;
    if (!first && done) first = begin_of_another_log(at, topic, known.message, *done);
    if (first) {
      begin_incarnation(claimed, *first);
      forget_the_old_log(at);
      return {claimed, true};
    }
    if (claimed.watermark) return {claimed};
    const WatermarkUpdate update{claimed.fence, known.first};
    claimed.watermark = known.first;
    if (spec.backends.store->advance_watermarks({&update, 1}).front() == WatermarkState::moved) return {claimed};
  }
}

void PollLoop::State::begin_incarnation(PartitionClaim& claim, Offset first) {
  claim.incarnation = spec.backends.store->begin_incarnation(claim.fence, first);
  claim.watermark = first;
  claim.progress.reset();
}

/// Of another log than the one of which all below `done` was settled: where to begin to read it. Nothing: it is that log, as far as can be
/// told. Kafka is asked only where `message` lies below `done`: it is in the log that Kafka has, and so is what follows it.
std::optional<Offset> PollLoop::State::begin_of_another_log(const TopicPartition& at, const TopicState& topic,
                                                            Offset message, Offset done) const {
  if (message >= done || !spec.backends.broker) return std::nullopt;
  try {
    const auto consumer = spec.backends.broker->open_consumer();
    const auto bounds = consumer->bounds(at, kKafkaWait);
    if (!bounds || bounds->second >= done) return std::nullopt;
    if (message >= bounds->second) return std::nullopt;  // the loop reads a topic of that name somewhere else
    const auto committed = consumer->committed({&at, 1}, kKafkaWait).front();
    const auto verdict =
        LogWatch().judge(at, {.committed = committed, .done = done, .first = bounds->first, .end = bounds->second});
    if (verdict.kind == LogWatch::Verdict::Kind::truncated && topic.runner.plan().knows_by_offset()) {
      run_log->error(at, "the log " + verdict.why +
                             ": the topic was recreated, or records were cut off its end. Its records below offset " +
                             std::to_string(done) +
                             " cannot be distinguished from those that were settled, and count as duplicates; give a "
                             "recreated topic another name");
      return std::nullopt;
    }
    run_log->warn(at, "the topic was recreated, or records were cut off its end: " + verdict.why +
                          "; reading it from its beginning, offset " + std::to_string(bounds->first));
    return bounds->first;
  } catch (const BrokerError& e) {
    run_log->warn(at, "the first message has offset " + std::to_string(message) + ", and everything below offset " +
                          std::to_string(done) +
                          " is settled; whether the topic was recreated meanwhile could not be asked: " + e.what());
    return std::nullopt;
  }
}

/// A caller that has not called revoked() reads lower offsets than before: of another log, if that ends below what was settled.
/// Call with the mutex held.
std::optional<Offset> PollLoop::State::has_gone_back(const TopicPartition& at, const TopicState& topic,
                                                     Offset message) {
  const auto known = progress.find(at);
  if (known == progress.end()) return std::nullopt;
  const Offset last = std::exchange(known->second.last, message);
  if (message >= last || !known->second.settled) return std::nullopt;
  return begin_of_another_log(at, topic, message, *known->second.settled);
}

/// Call with the mutex held.
void PollLoop::State::forget_the_old_log(const TopicPartition& at) {
  gone_back.erase(at);
  in_doubt.erase(at);
  attempts.erase(at);
  dropped.erase(at);
}

/// What lies between the watermark and the first message was settled, as its caller believes. The database may have lost that since, with
/// the process that could have noticed it. Where nothing lies between them, the same message is the next one after the seek.
void PollLoop::State::start_at_the_watermark(const Message& message, const TopicState& topic, const Claimed& claimed) {
  const TopicPartition at{std::string(message.topic()), message.partition()};
  const auto been = gone_back.extract(at);
  const auto& watermark = claimed.claim.watermark;
  if (!watermark || *watermark >= message.offset()) return;
  if (been && been.mapped() == *watermark) return;
  const Offset from = not_below_the_log(at, *watermark, message.offset());
  if (from == message.offset()) return;
  read_again[at] = from;
  gone_back[at] = *watermark;
  const std::string first = to_string(at) + ": the first message has offset " + std::to_string(message.offset());
  const std::string seek = "; seek the partition to offset " + std::to_string(from) + ", and call revoked()";
  if (claimed.another_log)
    throw ReadAgain(first + ", and the topic was recreated, so nothing of it was handled" + seek, {at, from});
  const auto unsettled = dropped.find(at);
  doubt(at, topic, unsettled == dropped.end() ? message.offset() : std::min(message.offset(), unsettled->second));
  throw ReadAgain(first + ", and the database records what was done only below offset " + std::to_string(*watermark) +
                      ": the last owner ended without releasing the partition, or the database lost its last "
                      "transactions" +
                      seek,
                  {at, from});
}

/// Nothing where no broker says it: without one, for a topic that it does not have, and while it does not answer.
std::optional<Offset> PollLoop::State::begin_of_log(const TopicPartition& at) const {
  if (!spec.backends.broker) return std::nullopt;
  try {
    const auto bounds = spec.backends.broker->open_consumer()->bounds(at, kKafkaWait);
    if (bounds) return bounds->first;
    run_log->warn(at, "Kafka does not say where the log begins, so the position to read again from may lie below that");
  } catch (const std::exception& e) {
    run_log->warn(
        at, std::string("where the log begins is not known, so the position to read again from may lie below that: ") +
                e.what());
  }
  return std::nullopt;
}

/// A seek below the log's start is answered by auto.offset.reset, which can be the log's end. `message` is there, so it bounds the answer.
Offset PollLoop::State::not_below_the_log(const TopicPartition& at, Offset from, Offset message) const {
  const Offset first = std::min(begin_of_log(at).value_or(from), message);
  if (from >= first) return from;
  run_log->warn(at, "Kafka has deleted records that the database does not record as settled: offsets " +
                        std::to_string(from) + " to " + std::to_string(first - 1) +
                        " (retention). What of them was not settled is lost; reading goes on at offset " +
                        std::to_string(first));
  return first;
}

/// What the caller settled may have taken effect where no transaction holds it, also where the database has no record of it.
void PollLoop::State::doubt(const TopicPartition& at, const TopicState& topic, Offset below) {
  if (topic.runner.plan().mode != Mode::leased) return;
  Offset& known = in_doubt[at];
  known = std::max(known, below);
}

/// Writes the watermark now and then: whatever lies below it is in the database, so it says from where to read again if the database
/// should go back to an earlier time.
void PollLoop::State::settled(const Message& message, const Place& place, const TopicState& topic) {
  if (!place.fence || topic.fails_open()) return;
  const WatermarkUpdate update{*place.fence, message.offset() + 1};
  {
    const std::lock_guard lock(mutex);
    const auto doubted = in_doubt.find(place.at);
    if (doubted != in_doubt.end() && message.offset() >= doubted->second) in_doubt.erase(doubted);
    const auto unsettled = dropped.find(place.at);
    if (unsettled != dropped.end() && message.offset() >= unsettled->second) dropped.erase(unsettled);
    Progress& now = progress[place.at];
    now.settled = std::max(now.settled.value_or(0), update.watermark);
    if (std::chrono::steady_clock::now() < now.next_flush) return;
    now.next_flush = std::chrono::steady_clock::now() + kFlush;
  }
  try {
    spec.backends.store->advance_watermarks(
        {&update, 1});  // under another fence nothing is done, which the next message tells
  } catch (const std::exception& e) {
    run_log->debug(place.at, topic.runner.plan().handler, message.offset(),
                   std::string("its watermark was not written, it lags until the next time: ") + e.what());
  }
}

/// The number of the run that is about to start.
int PollLoop::State::attempt_of(const Message& message, const Place& place) {
  const int next = place.suspicion ? 1 + place.suspicion->deaths(message.offset()) : 1;
  const std::lock_guard lock(mutex);
  const auto known = attempts.find(place.at);
  if (known == attempts.end()) return next;
  const auto kept = known->second.find(message.offset());
  return kept == known->second.end() ? next : std::max(next, kept->second);
}

void PollLoop::State::keep_attempt(const Message& message, const Place& place, int attempt) {
  const std::lock_guard lock(mutex);
  attempts[place.at][message.offset()] = attempt;
}

void PollLoop::State::forget_attempts(const Message& message, const Place& place) {
  const std::lock_guard lock(mutex);
  const auto known = attempts.find(place.at);
  if (known == attempts.end()) return;
  known->second.erase(message.offset());
  if (known->second.empty()) attempts.erase(known);
}

/// Throws ReadAgain where it was not another member, but another history of the database.
void PollLoop::State::fenced(const Place& place, const TopicState& topic, Offset message) {
  const std::lock_guard lock(mutex);
  const auto found = places.find(place.at);
  if (found == places.end() || found->second.fence != place.fence || topic.fails_open()) return;
  if (spec.backends.store->history() == place.fence->history) return;
  const Progress& known = progress[place.at];
  // An owner that takes over before the caller has read it again knows only what the database says.
  const Claimed claimed = claim_from(
      place.at, topic,
      {.message = message, .first = known.first, .settled = known.settled, .incarnation = place.incarnation});
  const Offset from = std::min(*claimed.claim.watermark, known.settled.value_or(known.first));
  if (known.settled && !claimed.another_log) doubt(place.at, topic, *known.settled);
  places.erase(found);
  gone_back[place.at] = from;
  throw_read_again(place.at, read_again[place.at] = not_below_the_log(place.at, from, message));
}

/// The caller drops the message: nothing that is known of the partition says where the next one stands.
void PollLoop::State::throw_fenced(const Message& message, const std::string& why) {
  const TopicPartition at{std::string(message.topic()), message.partition()};
  {
    const std::lock_guard lock(mutex);
    gone_back.erase(at);
    attempts.erase(at);
    Offset& first = dropped.try_emplace(at, message.offset()).first->second;
    first = std::min(first, message.offset());
  }
  release({&at, 1});
  throw Fenced(where(message) + ": " + why);
}

/// How far the last owner came is not known here: it can have had a window of messages in hand, behind what is settled. Nor is it known
/// where the caller begins: of those that it has in hand, `message` is only the first that came here.
void PollLoop::State::guard(Place& place, const PartitionClaim& claim, Offset message) {
  place.guard = claim.fence;
  const auto window = spec.config.consumer.window;
  const Offset first = std::min(message, claim.watermark.value_or(message)) - static_cast<Offset>(window);
  place.suspicion = suspect(*spec.backends.store->trials(), claim, std::max<Offset>(first, 0), std::nullopt, *run_log);
  if (place.suspicion) unproved[place.at] = window;
}

/// Mode none needs no store. Where the program has one all the same, it finds messages that kill their process there.
void PollLoop::State::guard_unfenced(Place& place, const TopicState& topic, Offset message) {
  try {
    guard(place, claim(place.at, topic), message);
  } catch (const std::exception& e) {
    run_log->info(
        place.at,
        std::string("mode none goes on without the database, which finds messages that kill their process: ") +
            e.what());
  }
}

void PollLoop::State::ran(const Place& place) {
  if (!place.suspicion) return;
  const std::lock_guard lock(mutex);
  const auto left = unproved.find(place.at);
  if (left == unproved.end() || --left->second > 0) return;
  unproved.erase(left);
  if (const auto mine = places.find(place.at); mine != places.end()) mine->second.suspicion = nullptr;
}

/// After ReadAgain the first call says that the caller has sought; any other says that the partition was taken away.
void PollLoop::State::revoked(const TopicPartition& at) {
  {
    const std::lock_guard lock(mutex);
    if (read_again.erase(at) == 0) {
      gone_back.erase(at);
      attempts.erase(at);
      dropped.erase(at);
    }
  }
  release({&at, 1});
}

/// Nothing of these runs any more: their next owners need not suspect that a message has killed us.
void PollLoop::State::release(std::span<const TopicPartition> partitions) {
  std::vector<Trials::Release> released;
  std::vector<WatermarkUpdate> watermarks;
  {
    const std::lock_guard lock(mutex);
    for (const TopicPartition& at : partitions) {
      const auto known = progress.extract(at);
      const auto mine = places.find(at);
      if (mine == places.end()) continue;
      if (known && known.mapped().settled && mine->second.fence)
        watermarks.push_back({*mine->second.fence, *known.mapped().settled});
      if (mine->second.guard) released.push_back({*mine->second.guard, mine->second.suspicion == nullptr});
      places.erase(mine);
      unproved.erase(at);
    }
  }
  if (released.empty()) return;
  try {
    if (!watermarks.empty()) spec.backends.store->advance_watermarks(watermarks);
    spec.backends.store->trials()->release(released);
  } catch (const std::exception& e) {
    run_log->info(
        std::string(
            "the partitions' release could not be recorded: their next owners are careful, as after a death: ") +
        e.what());
  }
}

/// What was running when a process died runs alone: nothing else is to die with it, or to be suspected.
UnitResult PollLoop::State::run(TopicState& topic, const Work& work, const Place& place, RunState& watch) {
  std::shared_lock together(quiet, std::defer_lock);
  std::unique_lock alone(quiet, std::defer_lock);
  const bool is_suspect = place.suspicion && place.suspicion->is_suspect(work.message->offset());
  {
    const std::lock_guard queue(door);  // whoever waits to be alone keeps others from entering
    if (is_suspect) alone.lock();
    else together.lock();
  }
  auto session = topic.needs_store() ? borrow() : nullptr;
  auto result = topic.runner.run({&work, 1}, place, session.get(), watch, is_suspect);
  if (session) give_back(std::move(session));
  return result;
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
  return spec.backends.store->open_session();
}

void PollLoop::State::give_back(std::unique_ptr<InboxSession> session) {
  const std::lock_guard lock(mutex);
  sessions.push_back(std::move(session));
}

PollLoop::PollLoop(Config config, Backends backends) : state_(std::make_unique<State>()) {
  state_->spec.config = std::move(config);
  state_->spec.backends = std::move(backends);
  if (!state_->spec.backends.limiters) state_->spec.backends.limiters = make_local_limiters();
}

PollLoop::~PollLoop() {
  const std::atomic<int> stop{2};
  const EndBound bound(state_->spec.backends.store, stop, {});
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
  log_through(state_->spec, std::move(logger));
  return *this;
}

Settled PollLoop::handle(const Message& message) {
  const auto throw_stopped = [&message] {
    throw Stopped(where(message) + ": not handled: stop() was called; do not commit it, it comes again");
  };
  if (state_->stop.is_requested()) throw_stopped();
  std::call_once(state_->built, [this] { state_->build(); });
  const auto found = state_->topics.find(message.topic());
  if (found == state_->topics.end()) {
    throw ConfigError({where(message) + ": this loop has no handler for the topic; add it with topic()"});
  }
  TopicState& topic = *found->second;
  const Place place = [&] {
    try {
      return state_->place_of(message, topic);
    } catch (const Fenced& e) {
      state_->throw_fenced(message, e.what());
    }
  }();
  const std::stop_token stop = state_->stop.token();
  RunState watch;
  const State::Watched watched(*state_, {watch, place.at, topic.runner.plan()});
  Work work{&message, 0, state_->attempt_of(message, place)};
  for (;;) {
    if (stop.stop_requested()) throw_stopped();
    UnitResult result;
    {
      watch.reset();
      const Permit permit =
          topic.limiter ? wait_for_permit(*topic.limiter, *state_->spec.backends.limiters, stop) : Permit{};
      if (topic.limiter && !permit) throw_stopped();
      const std::stop_callback on_stop(stop, [&watch] { watch.cancel(); });
      const std::stop_callback on_lost_permit(permit.lost(), [&watch] { watch.cancel(); });
      watch.under(permit);
      result = state_->run(topic, work, place, watch);
    }
    const Verdict& verdict = result.verdicts.front();
    const bool has_failed = verdict.kind == Verdict::Kind::retry && verdict.attempt > work.attempt;
    if (has_failed) state_->keep_attempt(message, place, work.attempt = verdict.attempt);
    if (result.end == UnitResult::End::fenced) {
      try {
        state_->fenced(place, topic, message.offset());
      } catch (const Fenced& e) {
        result.why = e.what();
      }
      state_->throw_fenced(message, result.why);
    }
    if (result.end == UnitResult::End::broken) throw TransactionEnded(result.why);
    if (result.end == UnitResult::End::store_away) throw StoreUnavailable(where(message) + ": " + result.why);
    if (verdict.kind == Verdict::Kind::settled) {
      if (work.attempt > 1) state_->forget_attempts(message, place);
      state_->settled(message, place, topic);
      if (result.counts.duplicates == 0) state_->ran(place);
      if (result.raises) {
        throw Duplicate(where(message) + ": its id was seen before by handler '" + topic.runner.plan().handler + "'");
      }
      return what_became(result.counts);
    }
    if (result.stopped) throw Halted(where(message) + ": " + result.why);
    if (verdict.kind == Verdict::Kind::retry && !has_failed && result.refused) {
      if (result.row_waits) {
        throw StoreUnavailable(where(message) +
                               ": the message is dead and the row of its dead letter was not written: " + result.why);
      }
      throw BrokerError(where(message) + ": the message is dead and its dead letter was refused: " + result.why);
    }
    Stop::sleep(verdict.delay, stop);  // outside the transaction and without a permit
  }
}

void PollLoop::stop() noexcept { state_->stop.request(); }

/// As a Consumer commits: by Kafka's offset a later owner knows what was settled, and it starts at the database's watermark anyway.
bool PollLoop::may_commit(const TopicPartitionOffset& position) const {
  const std::lock_guard lock(state_->mutex);
  const auto doubted = state_->in_doubt.find(position.at);
  return doubted == state_->in_doubt.end() || position.offset >= doubted->second;
}

void PollLoop::revoked(const TopicPartition& partition) { state_->revoked(partition); }

}  // namespace turnstile
