#pragma once
// Dead letters that follow one another: many in a row for one reason mean that something else is wrong than the messages. The
// partition then stops before all of it is dead.

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "config/topic_plan.hpp"
#include "delivery/owned_partition.hpp"

namespace turnstile {

/// Of one topic. Thread-safe.
class DeadLetterStreaks {
 public:
  /// After `most` in a row the partition stops; 0: never. Messages in doubt (`unknown`) do not count.
  explicit DeadLetterStreaks(std::int64_t most) : most_(most) {}

  /// Counts a dead letter that is about to be kept. When it is above `most`, it is not counted, and the number of those before it is
  /// returned. Workers dead-letter concurrently, and together they never exceed `most`.
  std::optional<std::int64_t> count(const OwnedPartition& place, DeadReason reason);
  /// The dead letter could not be kept.
  void take_back(const OwnedPartition& place, DeadReason reason);
  /// A message of the partition took effect, or was seen to have done so.
  void went_well(const OwnedPartition& place);
  /// True the first time for this streak.
  bool tell_of(const OwnedPartition& place);

 private:
  struct Streak {
    std::optional<Fence> fence;
    DeadReason reason{};
    std::int64_t count = 0;
    bool told = false;
  };
  const std::int64_t most_;
  std::atomic<std::size_t> running_{0};  ///< how many there are, for who has nothing to end
  mutable std::mutex mutex_;
  std::map<std::int32_t, Streak> by_partition_;
};

/// What to do when a partition has stopped for dead letters of this reason. `rows`: `turnstile dlq replay` finds them in the table `dead`.
std::string remedy_for(DeadReason reason, const TopicPlan& plan, bool rows);

}  // namespace turnstile
