#pragma once
// Where a partition ends, as Kafka told last.

#include <map>
#include <optional>
#include <string>

#include "turnstile/types.hpp"

namespace turnstile::detail {

struct PartitionEnd {
  std::optional<Offset> offset;  ///< after the last record; the last known one while Kafka does not tell
  std::string why_unknown;       ///< why Kafka did not tell when it was last asked; empty: it told
};
using PartitionEnds = std::map<TopicPartition, PartitionEnd>;

}  // namespace turnstile::detail
