#pragma once
// What is paused, as this process knows it, and which of its partitions and keys that holds. Pure.

#include <string>
#include <vector>

#include "turnstile/ports/pauses.hpp"
#include "turnstile/types.hpp"

namespace turnstile::detail {

struct Pauses {
  std::vector<ports::Pause> all{};  ///< in effect
  /// The store did not answer the last question. An operator may have paused more since the answer before, so messages
  /// that need the store wait until it tells what is paused.
  bool unknown = false;

  /// Whether it tells the same. The time that is left does not count.
  [[nodiscard]] bool is_same(const Pauses& other) const;
  /// Whether the whole partition is paused.
  [[nodiscard]] bool hold(const TopicPartition& at) const;
  /// The paused keys of the partition.
  [[nodiscard]] std::vector<std::string> keys_in(const TopicPartition& at) const;
};

/// "topic payments", "partition 3 of topic payments", "a key of topic payments". Without the key: logs have no keys.
std::string name_of(const ports::PausedPart& part);

}  // namespace turnstile::detail
