#pragma once
// Counts consecutive dead letters. Many with the same reason show that the messages are not the problem. The partition
// then stops before all its messages are dead-lettered.

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "config/topic_plan.hpp"
#include "delivery/owned_partition.hpp"
#include "turnstile/dead_reason.hpp"

namespace turnstile {

/// The streaks of a topic. Thread-safe.
class DeadLetterStreaks {
 public:
  /// After `most` consecutive dead letters, no more may follow; 0: no limit. Messages in doubt (`unknown`) do not
  /// count.
  explicit DeadLetterStreaks(std::int64_t most) : most_(most) {}

  /// Counts a dead letter that is about to be stored. If it is one too many, it is not counted, and the result is how
  /// many there were. Workers store dead letters concurrently, and none exceeds the number.
  std::optional<std::int64_t> count(const OwnedPartition& place, DeadReason reason);
  /// The dead letter could not be stored.
  void take_back(const OwnedPartition& place, DeadReason reason);
  /// A message of the partition took effect, or was found to have taken effect.
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
  std::atomic<std::size_t> running_{0};  ///< the number of streaks, so that callers without a streak need no lock
  mutable std::mutex mutex_;
  std::map<std::int32_t, Streak> by_partition_;
};

/// What to do when a partition has stopped because of dead letters with this reason. `rows`: they are in the table
/// `dead`, where `turnstile dlq replay` finds them.
std::string remedy_for(DeadReason reason, const TopicPlan& plan, bool rows);

}  // namespace turnstile
