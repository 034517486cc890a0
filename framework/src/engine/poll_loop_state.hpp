#pragma once
// What a PollLoop knows: poll_loop.cpp handles messages, poll_loop_claims.cpp claims partitions and says where they are read from.

#include <atomic>
#include <condition_variable>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <span>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "engine/log_watch.hpp"
#include "engine/setup.hpp"
#include "turnstile/poll_loop.hpp"

namespace turnstile {

struct PollLoop::State {
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
    /// How soon what waits or runs learns of stop(), and a handler of the end of its handler_timeout.
    static constexpr std::chrono::milliseconds kLook{50};
    static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler writes it");
    std::atomic<bool> requested_{false};
    std::stop_source source_;
    std::jthread thread_;
  };

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
  std::map<TopicPartition, OwnedPartition> places;
  /// Of a partition that was claimed: what was settled under its fence.
  struct Progress {
    Offset first = 0;                 ///< the first message
    Offset last = 0;                  ///< the one that came last
    std::optional<Offset> settled{};  ///< one past the last
    SteadyTime next_flush{};
  };
  std::map<TopicPartition, Progress> progress;
  std::map<TopicPartition, LogMemory>
      handled;  ///< the last records that came, also of partitions that were taken away since
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
  OwnedPartition place_of(const Message& message, const TopicState& topic);
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
                                             std::optional<Offset> done) const;
  std::optional<Offset> look_at_record(const TopicPartition& at, const TopicState& topic, const Message& message);
  std::optional<Offset> has_gone_back(const TopicPartition& at, const TopicState& topic, Offset message);
  void forget_the_old_log(const TopicPartition& at);
  void settled(const Message& message, const OwnedPartition& place, const TopicState& topic);
  void start_at_the_watermark(const Message& message, const TopicState& topic, const Claimed& claimed);
  void doubt(const TopicPartition& at, const TopicState& topic, Offset below);
  std::optional<Offset> begin_of_log(const TopicPartition& at) const;
  Offset not_below_the_log(const TopicPartition& at, Offset from, Offset message) const;
  int attempt_of(const Message& message, const OwnedPartition& place);
  void keep_attempt(const Message& message, const OwnedPartition& place, int attempt);
  void forget_attempts(const Message& message, const OwnedPartition& place);
  void fenced(const OwnedPartition& place, const TopicState& topic, Offset message);
  [[noreturn]] void throw_fenced(const Message& message, const std::string& why);
  void guard(OwnedPartition& place, const PartitionClaim& claim, Offset message);
  void guard_unfenced(OwnedPartition& place, const TopicState& topic, Offset message);
  void ran(const OwnedPartition& place);
  void revoked(const TopicPartition& at);
  void release(std::span<const TopicPartition> partitions);
  UnitResult run(TopicState& topic, const Work& work, const OwnedPartition& place, RunState& watch);
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

}  // namespace turnstile
