#pragma once
// A partition as this process owns it now.

#include <memory>
#include <optional>
#include <set>

#include "turnstile/types.hpp"

namespace turnstile {

struct Place {
  TopicPartition at;
  std::optional<Fence> fence;  ///< absent in mode none
  std::int32_t incarnation = 0;
  std::shared_ptr<const std::set<Offset>> dead{};  ///< what is not run again, see DeadLetters::find(); may be null

  [[nodiscard]] bool is_dead(Offset offset) const { return dead && dead->contains(offset); }
};

}  // namespace turnstile
