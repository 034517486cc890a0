#pragma once
// A partition that this process owns now.

#include <algorithm>
#include <memory>
#include <optional>
#include <set>

#include "delivery/suspicion.hpp"
#include "turnstile/types.hpp"

namespace turnstile::detail {

/// Messages of a partition that are known to be settled.
struct SettledOffsets {
  Offset below = 0;           ///< all messages below this offset are settled
  std::set<Offset> except{};  ///< except these

  [[nodiscard]] bool contains(Offset offset) const { return offset < below && !except.contains(offset); }
  [[nodiscard]] bool any_from(Offset first) const { return below > first; }
  /// Adds the messages that `other` contains.
  void add(const SettledOffsets& other) {
    const Offset mine = below;
    std::erase_if(except, [&](Offset offset) { return other.contains(offset); });
    for (const Offset offset : other.except) {
      if (offset >= mine) except.insert(offset);
    }
    below = std::max(mine, other.below);
  }
};

/// Whether this process made both claims, one directly after the other, so that no other process owned the partition in
/// between. This process is live, so no message has killed the partition's owner.
[[nodiscard]] inline bool is_next_claim(const std::optional<Fence>& before, const Fence& now) {
  return before && before->slot == now.slot && before->epoch.value + 1 == now.epoch.value;
}

struct OwnedPartition {
  TopicPartition at;
  std::optional<Fence> fence;  ///< absent in mode at_least_once
  std::int32_t incarnation = 0;
  /// Dead letters that must not run again, see DeadLetters::find(). May be null.
  std::shared_ptr<const std::set<Offset>> dead{};
  /// Mode leased: messages that were settled before the database went back to an earlier time, and are now read again.
  /// Such a message may have taken effect although the database has no record of it. May be null.
  std::shared_ptr<const SettledOffsets> in_doubt{};
  /// The fence under which trials are recorded: `fence`. In mode at_least_once it is the store's fence, if there is a
  /// store.
  std::optional<Fence> guard{};
  SuspicionPtr suspicion{};  ///< null: the last owner released the partition

  [[nodiscard]] bool is_dead(Offset offset) const { return dead && dead->contains(offset); }
  [[nodiscard]] bool is_in_doubt(Offset offset) const { return in_doubt && in_doubt->contains(offset); }
};

}  // namespace turnstile::detail
