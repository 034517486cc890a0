#pragma once
// A lane with its assignment: who owns the partition, from where it is read, and up to where Kafka and the store know
// it.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "delivery/owned_partition.hpp"
#include "engine/header_sizes.hpp"
#include "engine/lane.hpp"
#include "engine/partition_end.hpp"
#include "engine/pauses.hpp"
#include "engine/topic_state.hpp"

namespace turnstile::detail {

/// The limits for the unsettled messages of each partition.
struct Window {
  /// How many a lane takes until it runs dry. Slow handlers need no more, and a message takes 0.6 to 0.8 KB (measured).
  static constexpr std::size_t kFirst = 2'500;
  std::size_t messages = 10'000;
  std::size_t bytes = std::size_t{16} << 20;  ///< can be exceeded by one block, because a larger message must fit
};

/// An assignment of a partition. It outlives the assignment while a worker still has some of its messages.
struct LaneState {
  LaneState(TopicState& t, OwnedPartition p) : topic(t), place(std::move(p)), lane(t.runner.plan().order) {}

  enum class Phase : std::uint8_t {
    claiming,  ///< the store does not know this process as the owner yet: nothing is taken, nothing runs
    open,
    draining,  ///< nothing new starts
    fenced,    ///< the store knows a newer owner
    gone,
  };
  TopicState& topic;
  OwnedPartition place;  ///< changes only while nothing of the lane runs
  Lane lane;
  Phase phase = Phase::open;
  std::deque<std::pair<Offset, SteadyTime>> arrivals;  ///< of blocks, by their last offset; only for traces
  bool paused = false;                                 ///< nothing new starts, because it is paused as a whole
  bool waits_for_pauses = false;                       ///< nothing starts until the store tells what is paused
  bool wants_feed = false;                             ///< records were left in Kafka because there was no room
  std::size_t window = Window::kFirst;                 ///< how many messages it takes, within the limits
  bool was_full = false;                               ///< since the window grew
  std::optional<Offset> read_up_to;                    ///< used with the turn: the end that was last passed to the lane
  bool was_fed = false;                                ///< used with the turn: records were passed to the lane
  HeaderSizes header_sizes;                            ///< used with the turn
  Seq looked_up = 0;                                   ///< messages before it were looked up in the inbox
  /// The largest number of messages in a unit. It is small after a unit was rolled back because a message failed.
  std::size_t unit_most = SIZE_MAX;
  /// Since when its messages wait for other transactions to end, see Scheduler::is_crowded().
  std::optional<SteadyTime> crowded_since;
  /// Where reading began. All below it is settled, so this offset may be committed.
  std::optional<Offset> start;
  std::optional<Offset> committed;   ///< the group's offset that Kafka has accepted
  std::optional<Offset> committing;  ///< the offset that is being committed
  SteadyTime committing_since{};
  std::optional<SteadyTime> drains_until;  ///< used by the polling thread: how long its handlers may run on, `replaced`
  bool follows_other_log = false;          ///< used by the polling thread: opened for another log, and not claimed yet
  bool replaced = false;          ///< Kafka has another log under this name: its positions have no meaning any more
  std::optional<Offset> flushed;  ///< the store's last known watermark
  bool went_back = false;         ///< fenced: the store has a lower watermark than `flushed`
  /// The previous lane of the same assignment, whose fence belonged to another history of the store.
  struct Before {
    SettledOffsets settled;
    std::optional<Offset> first;  ///< where the group began to read the partition, if that lane did so
  };
  std::optional<Before> before;
  PartitionEnd end;                     ///< for the watchdog: Kafka is asked every few seconds
  std::optional<Offset> last_position;  ///< for the watchdog, with `moved_at`
  SteadyTime moved_at{};
  std::chrono::milliseconds stalled_for{};             ///< how long the stall had lasted at the last report
  SteadyTime claim_at{};                               ///< claiming, fenced: when to try (again)
  std::string unclaimed_why = "it was not tried yet";  ///< claiming, fenced

  /// Whether Kafka has records that were not read, or does not tell. Only for a claimed partition.
  [[nodiscard]] bool may_have_unread() const;
  /// How many offsets a producer's open transaction hides, if it has read all that consumers can read.
  [[nodiscard]] std::int64_t hidden() const;
  /// Whether its messages may start. Those of paused keys wait in `lane`.
  [[nodiscard]] bool may_start() const noexcept { return phase == Phase::open && !paused && !waits_for_pauses; }
  /// Whether it makes no progress because an operator, or the circuit breaker of its handler, wants that.
  [[nodiscard]] bool is_held() const;
  void look_at(const Pauses& pauses);
  /// How many unsettled messages it may have now.
  [[nodiscard]] std::size_t most_unsettled(const Window& limits) const noexcept;
  /// Whether it needs messages: none that it has can start. All run or are settled, or they wait for others of their
  /// keys, for retries, or for an operator.
  [[nodiscard]] bool is_dry(SteadyTime now) const;
  /// Whether it should take messages.
  [[nodiscard]] bool has_room(const Window& limits, SteadyTime now) const;
  /// Lets it take more if it was full, and is dry.
  void widen_if_dry(const Window& limits, SteadyTime now);
};
using LanePtr = std::shared_ptr<LaneState>;

std::vector<TopicPartition> partitions_of(const std::vector<LanePtr>& lanes);

/// When the message at this offset arrived, if `arrivals` is kept.
std::optional<SteadyTime> arrival_of(const LaneState& lane, Offset offset);

/// The data for a lane that replaces this one. Only inside Scheduler::locked().
LaneState::Before what_was_settled(const LaneState& lane);

}  // namespace turnstile::detail
