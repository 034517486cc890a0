#pragma once
// Takes messages of one partition through inbox, handler and commit, and says what became of each. Knows nothing of
// threads, queues or offsets: the engine, the PollLoop and the tests all use it.
//
// The result equals that of one message at a time: what fails in a batch is rolled back with it, found, and run alone.

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "config/topic_plan.hpp"
#include "delivery/dead_letters.hpp"
#include "delivery/death_streaks.hpp"
#include "delivery/lease_renewer.hpp"
#include "delivery/place.hpp"
#include "delivery/producer_secrets.hpp"
#include "delivery/run_state.hpp"
#include "delivery/work.hpp"
#include "inbox/purger.hpp"
#include "support/observers.hpp"
#include "support/run_log.hpp"
#include "turnstile/handler.hpp"
#include "turnstile/ports/inbox.hpp"

namespace turnstile {

/// What the caller is to do with one message.
struct Verdict {
  enum class Kind : std::uint8_t {
    put_back,  ///< it was not decided; it keeps its place
    settled,   ///< its offset may be committed
    retry,     ///< again after `delay`, as run number `attempt`
  };
  Kind kind = Kind::put_back;
  std::chrono::milliseconds delay{};
  int attempt = 1;
};

/// A unit of work, and what came of it.
struct UnitResult {
  enum class End : std::uint8_t {
    ran,
    store_away,
    fenced,
    broken,  ///< a handler ended the transaction of its batch: the consumer must stop
  };
  std::vector<Verdict> verdicts;  ///< one for each message, in their order
  End end = End::ran;
  bool refused = false;    ///< a dead message found no place: it waits (its verdict is retry)
  bool row_waits = false;  ///< the same, since the store is away that its row goes to
  bool stopped = false;    ///< the same, since too many died in a row
  bool raises = false;     ///< an id was seen before, which the caller is to raise
  std::string why;         ///< for store_away, fenced, broken and refused
  BatchReport counts;
};

class TopicRunner {
 public:
  struct Services {
    std::shared_ptr<InboxStore> store;             ///< null where the mode is none
    std::shared_ptr<Retention> retention{};        ///< how far back ids are known; null without a store
    std::shared_ptr<LeaseRenewer> claims{};        ///< null unless the mode is leased
    std::shared_ptr<ProducerSecrets> producers{};  ///< null unless producers number their requests
    std::shared_ptr<Trials> trials{};              ///< null where the program has no store
    std::shared_ptr<DeadLetters> dead_letters;
    std::shared_ptr<const RunLog> run_log;
    Observers observers{};
    std::chrono::milliseconds lock_timeout{5'000};
    std::chrono::milliseconds idle_timeout{30'000};
    /// Something was committed to the outbox. Called on a worker's thread; may be empty.
    std::function<void()> on_published{};
    /// Where the policy is `raise`: the caller throws Duplicate itself, so there is nothing to bury.
    bool caller_raises = false;
  };

  TopicRunner(TopicPlan plan, Pipeline pipeline, HandlerId handler, Services services);

  /// Runs `works` (of the partition `place`, ascending). `session` is null where the mode is none. Never throws for what a
  /// handler, the store or the broker does; thread-safe, one session and one watch a thread.
  /// `alone`: the process runs nothing else meanwhile.
  UnitResult run(std::span<const Work> works, const Place& place, InboxSession* session, RunState& watch,
                 bool alone = false);
  /// Mode leased: the same without the store, which is away; nothing is claimed.
  UnitResult run_unclaimed(std::span<const Work> works, const Place& place, RunState& watch);
  /// Settles those whose ids are in the inbox already, and puts the others back: needs no permit.
  UnitResult look_up(std::span<const Work> works, const Place& place, InboxSession& session);
  /// For a place that was just claimed, and is read from `start` on (nothing: that is not known).
  void find_dead(Place& place, std::optional<Offset> start) const {
    services_.dead_letters->find(place, plan_, handler_, start.value_or(0));
  }
  /// Whether look_up() can settle anything: the topic deduplicates, and skips duplicates without looking at them.
  [[nodiscard]] bool can_look_up() const noexcept;

  /// Why a message that is dead has not become a dead letter yet, and holds its partition; nothing: it is not one.
  [[nodiscard]] std::optional<std::string> why_not_buried(const Place& place, Offset offset) const;

  [[nodiscard]] const TopicPlan& plan() const noexcept { return plan_; }
  [[nodiscard]] HandlerId handler() const noexcept { return handler_; }
  [[nodiscard]] const Services& services() const noexcept { return services_; }

 private:
  friend class UnitRun;

  UnitResult run_recorded(std::span<const Work> works, const Place& place, InboxSession* session, RunState& watch,
                          bool alone);
  UnitResult run_mode(std::span<const Work> works, const Place& place, InboxSession* session, RunState& watch);

  /// Deaths that could not be put anywhere yet: the handler must not run again for them, while nobody else had the partition.
  std::optional<Death> pending_death(const Place& place, Offset offset) const;
  void keep_pending(const Place& place, Offset offset, const Death& death, const std::string& refused);
  void drop_pending(const Place& place, Offset offset);
  /// Mode transactional: how often in a row the database was busy when the message's handler, or the commit, asked for something.
  int count_busy(const Place& place, Offset offset);
  void forget_busy(const Place& place, Offset offset);
  /// Mode leased: messages that took effect, whose claims were gone when that was to be written down.
  void note_unrecorded(const MessageId& id);
  void drop_unrecorded(const MessageId& id);
  [[nodiscard]] bool is_unrecorded(const MessageId& id) const;

  /// Mode leased: for how many messages at once it is recorded that their handlers begin.
  [[nodiscard]] std::size_t begun_together() const noexcept;
  void note_handler_time(std::chrono::nanoseconds took) noexcept;

  TopicPlan plan_;
  Pipeline pipeline_;
  HandlerId handler_;
  Services services_;
  mutable std::mutex mutex_;
  struct Pending {
    std::optional<Fence> fence;  ///< under which it died
    Death death;
    std::string refused;  ///< why it could not be buried, the last time
  };
  std::map<std::pair<std::int32_t, Offset>, Pending> pending_;
  std::atomic<std::size_t> pending_count_{0};
  std::map<std::pair<std::int32_t, Offset>, int> busy_;
  std::atomic<std::size_t> busy_count_{0};
  std::set<MessageId> unrecorded_;
  std::atomic<std::size_t> unrecorded_count_{0};
  std::atomic<std::int64_t> timed_{0};            ///< handlers of one message each
  std::atomic<std::int64_t> mean_handler_ns_{0};  ///< moving average
  DeathStreaks streaks_;
};

}  // namespace turnstile
