#pragma once
// The state of a PollLoop. poll_loop.cpp handles messages. poll_loop_claims.cpp claims partitions and decides where
// they are read from.

#include <atomic>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/log_identity.hpp"
#include "engine/quiet_room.hpp"
#include "engine/setup.hpp"
#include "engine/stop_flag.hpp"
#include "inbox/purger.hpp"

namespace turnstile::detail {

struct PollLoopState {
  ConsumerSpec spec;
  std::mutex building;  // during build()
  std::shared_ptr<const RunLog> run_log;
  std::map<std::string, std::unique_ptr<TopicState>, std::less<>> topics;
  std::atomic<bool> is_built{false};  // what build() makes does not change any more
  std::unique_ptr<Purger> purger;     // null without handlers that store ids
  std::shared_ptr<Relay> relay;       // null without a broker or a store
  /// A handler that runs on its caller's thread.
  struct Running {
    RunState& watch;
    const TopicPlan& plan;
    const TopicPartition& at;
  };
  std::mutex watching;         // protects `running`
  std::list<Running> running;  // running handlers, for their handler_timeout
  StopFlag stop;               // its thread checks `running`
  std::mutex mutex;            // protects the following members
  std::map<TopicPartition, OwnedPartition> places;
  /// Of a claimed partition: what was settled under its fence.
  struct Progress {
    Offset first = 0;                 ///< the first message
    Offset last = 0;                  ///< the last message
    std::optional<Offset> settled{};  ///< the offset after the last settled message
    SteadyTime next_flush{};
  };
  std::map<TopicPartition, Progress> progress;
  /// The last records that were handled of a partition. If another member has begun a later incarnation since, they are
  /// records of an old log. If the store has an earlier one, it went back to a time before this log.
  struct Memory {
    LogMemory log;
    std::int32_t incarnation = 0;  ///< under which they were handled
  };
  std::map<TopicPartition, Memory> handled;  ///< of each partition that was claimed, including revoked partitions
  /// Where to read from. Until revoked() is called once, each message of the partition throws ReadAgain.
  std::map<TopicPartition, Offset> read_again;
  /// The watermark that the last ReadAgain named, until the next message of the partition. A second revoked() before
  /// that message deletes it, because the seek has no effect any more. The partition was revoked, and comes back where
  /// Kafka tells. It is also deleted if that message throws Fenced, because the caller drops the message.
  std::map<TopicPartition, Offset> gone_back;
  /// Mode leased: what was settled when the caller was sent back. Kept until a message from there on is settled.
  struct Doubt {
    Offset below = 0;  ///< the messages below it
    /// The messages below it were settled by this loop itself. The others were settled by the group, as the offset
    /// showed from which the caller read. If the partition comes back, its offset shows that again.
    Offset own = 0;
  };
  std::map<TopicPartition, Doubt> in_doubt;
  /// The first message that threw Fenced. The caller has dropped it, so its next message tells nothing about the
  /// messages from there on. Kept until one of them is settled, or the partition is revoked.
  std::map<TopicPartition, Offset> dropped;
  /// The next attempt of messages that the caller must handle again. Kept until they are settled, or revoked.
  std::map<TopicPartition, std::map<Offset, int>> attempts;
  /// Partitions under suspicion: how many messages must run until the suspicion is over.
  std::map<TopicPartition, std::size_t> unproved;
  std::vector<std::unique_ptr<ports::InboxSession>> sessions;  // idle sessions
  QuietRoom quiet;

  void build();
  OwnedPartition place_of(const Message& message, const TopicState& topic);
  ports::PartitionClaim claim(const TopicPartition& at, const TopicState& topic);
  /// What this loop knows of a partition before it claims it.
  struct Known {
    Offset message = 0;               ///< the last message
    Offset first = 0;                 ///< the first message
    bool is_other = false;            ///< this loop has handled another record at the last message's offset
    std::optional<Offset> settled{};  ///< all below it is settled, as this loop saw it
  };
  struct Claimed {
    ports::PartitionClaim claim;
    bool another_log = false;  ///< Kafka has another log under this name than the settled one
    /// Another member had found another log under this name. What this loop knew of the partition has no meaning.
    bool begun_elsewhere = false;
  };
  Claimed claim_from(const TopicPartition& at, const TopicState& topic, Known known);
  void begin_incarnation(ports::PartitionClaim& claim, Offset first, std::int32_t at_least);
  std::optional<Offset> begin_of_another_log(const TopicPartition& at, const TopicState& topic, Offset message,
                                             std::optional<Offset> done) const;
  std::optional<std::pair<Offset, Offset>> bounds_of_another_log(const TopicPartition& at, Offset message,
                                                                 std::optional<Offset> done) const;
  bool remembers_records(const TopicState& topic) const;
  bool is_other_record(const TopicPartition& at, const TopicState& topic, const Message& message) const;
  void remember(const TopicPartition& at, const TopicState& topic, const Message& message);
  bool may_be_another_log(const TopicPartition& at, const Known& known);
  void warn_of_same_topic(const TopicPartition& at, Offset message, const std::exception& why) const;
  void forget_the_old_log(const TopicPartition& at);
  void settled(const Message& message, const OwnedPartition& place, const TopicState& topic);
  void start_at_the_watermark(const Message& message, const TopicState& topic, const Claimed& claimed);
  void doubt(const TopicPartition& at, const TopicState& topic, const Doubt& more);
  void forget_doubt_of_the_group(const TopicPartition& at);
  std::optional<Offset> begin_of_log(const TopicPartition& at) const;
  Offset not_below_the_log(const TopicPartition& at, Offset from, Offset message) const;
  int attempt_of(const Message& message, const OwnedPartition& place);
  void keep_attempt(const Message& message, const OwnedPartition& place, int attempt);
  void forget_attempts(const Message& message, const OwnedPartition& place);
  void fenced(const OwnedPartition& place, const TopicState& topic, Offset message);
  [[noreturn]] void throw_fenced(const Message& message, const std::string& why);
  void guard(OwnedPartition& place, const ports::PartitionClaim& claim, Offset message, const OwnedPartition* before);
  void guard_unfenced(OwnedPartition& place, const TopicState& topic, Offset message);
  void ran(const OwnedPartition& place);
  void revoked(const TopicPartition& at);
  std::optional<std::chrono::milliseconds> runs_for(const TopicPartition& at);
  void release(std::span<const TopicPartition> partitions);
  UnitResult run(TopicState& topic, const Work& work, const OwnedPartition& place, RunState& watch);
  /// While this object lives, the loop's thread checks the run.
  class Watched {
   public:
    Watched(PollLoopState& state, const Running& run) : state_(state) {
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
    PollLoopState& state_;
    std::list<Running>::iterator mine_;
  };
  std::unique_ptr<ports::InboxSession> borrow();
  void give_back(std::unique_ptr<ports::InboxSession> session);
};

}  // namespace turnstile::detail
