#pragma once
// A partition as this process owns it now.

#include <algorithm>
#include <memory>
#include <optional>
#include <set>

#include "delivery/suspicion.hpp"
#include "turnstile/types.hpp"

namespace turnstile {

/// Messages of a partition that were settled, as far as is known.
struct SettledOffsets {
  Offset below = 0;           ///< all below it
  std::set<Offset> except{};  ///< but for these

  [[nodiscard]] bool contains(Offset offset) const { return offset < below && !except.contains(offset); }
  [[nodiscard]] bool any_from(Offset first) const { return below > first; }
  /// What either of the two contains.
  void add(const SettledOffsets& other) {
    const Offset mine = below;
    std::erase_if(except, [&](Offset offset) { return other.contains(offset); });
    for (const Offset offset : other.except) {
      if (offset >= mine) except.insert(offset);
    }
    below = std::max(mine, other.below);
  }
};

/// Whether no other process has owned the partition since `before`. This process lives, so no message has killed its
/// owner.
[[nodiscard]] inline bool is_next_claim(const std::optional<Fence>& before, const Fence& now) {
  return before && before->slot == now.slot && before->epoch.value + 1 == now.epoch.value;
}

struct OwnedPartition {
  TopicPartition at;
  std::optional<Fence> fence;  ///< absent in mode at_least_once
  std::int32_t incarnation = 0;
  std::shared_ptr<const std::set<Offset>>
      dead{};  ///< dead letters that do not run again, see DeadLetters::find(); may be null
  /// Mode leased: messages that are read again although they were settled before the database went back to an earlier
  /// time. If the database has no record of such a message, it may still have taken effect. May be null.
  std::shared_ptr<const SettledOffsets> in_doubt{};
  std::optional<Fence>
      guard{};  ///< under which trials are recorded: `fence`, or in mode at_least_once that of the store, if there is one
  SuspicionPtr suspicion{};  ///< null: the last owner has released the partition

  [[nodiscard]] bool is_dead(Offset offset) const { return dead && dead->contains(offset); }
  [[nodiscard]] bool is_in_doubt(Offset offset) const { return in_doubt && in_doubt->contains(offset); }
};

}  // namespace turnstile
