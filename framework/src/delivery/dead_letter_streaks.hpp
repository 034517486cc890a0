#pragma once
// Counts consecutive dead letters. Many with the same reason show that the messages are not the cause. The partition
// then stops, before all its messages are dead-lettered.

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "config/topic_plan.hpp"
#include "delivery/owned_partition.hpp"
#include "turnstile/dead_reason.hpp"

namespace turnstile::detail {

/// The streaks of a topic. Thread-safe.
class DeadLetterStreaks {
 public:
  /// Up to `most` dead letters with the same reason may follow one another in a partition. 0: no limit. Messages in
  /// doubt (`unknown`) do not count.
  explicit DeadLetterStreaks(std::int64_t most) : most_(most) {}

  /// Counts a dead letter that is about to be stored. Absent: it may be stored. Otherwise the limit is reached, the
  /// dead letter is not counted, and the result is the number of dead letters before it. Workers that store dead
  /// letters concurrently do not exceed the limit.
  std::optional<std::int64_t> count(const OwnedPartition& place, DeadReason reason);
  /// Takes back count(): the dead letter could not be stored.
  void take_back(const OwnedPartition& place, DeadReason reason);
  /// A message of the partition took effect, or was found to have taken effect.
  void went_well(const OwnedPartition& place);
  /// The partition has other records now.
  void forget(const TopicPartition& at);
  /// True at the first call for this streak. False: there was an earlier call, or there is no streak.
  bool tell_of(const OwnedPartition& place);

 private:
  struct Streak {
    std::optional<Fence> fence;
    DeadReason reason{};
    std::int64_t count = 0;
    bool told = false;
  };
  const std::int64_t most_;
  std::atomic<std::size_t> running_{0};  ///< the number of streaks; if it is 0, went_well() takes no lock
  mutable std::mutex mutex_;
  std::map<std::int32_t, Streak> by_partition_;
};

/// What the operator must do when a partition has stopped because of dead letters with this reason. `rows`: the dead
/// letters are in the table `dead`, where `turnstile dlq replay` finds them.
std::string remedy_for(DeadReason reason, const TopicPlan& plan, bool rows);

}  // namespace turnstile::detail
