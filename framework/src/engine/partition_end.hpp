#pragma once
// Where a partition ends, as Kafka told last.

#include <map>
#include <optional>
#include <string>

#include "turnstile/ports/broker.hpp"
#include "turnstile/types.hpp"

namespace turnstile::detail {

struct PartitionEnd {
  /// The last known one while Kafka does not tell.
  std::optional<ports::PartitionEnd> offsets;
  std::string why_unknown;  ///< why Kafka did not tell when it was last asked; empty: it told
};
using PartitionEnds = std::map<TopicPartition, PartitionEnd>;

}  // namespace turnstile::detail
