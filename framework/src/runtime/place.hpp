#pragma once
// A partition as this process owns it now.

#include <optional>

#include "turnstile/types.hpp"

namespace turnstile {

struct Place {
  TopicPartition at;
  std::optional<Fence> fence;  ///< absent in mode none
  std::int32_t incarnation = 0;
};

}  // namespace turnstile
