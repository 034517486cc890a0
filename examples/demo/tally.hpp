#pragma once
// The records that this process has received and not settled, by partition.

#include <array>
#include <atomic>
#include <cstdint>

#include "board.hpp"

namespace demo {

/// Thread-safe.
class Tally {
 public:
  void delivered(std::int32_t partition) { ++at(partition).delivered; }
  void settled(std::int32_t partition, std::int64_t messages) { at(partition).settled += messages; }
  /// The partition was revoked: returns how many records were delivered and not settled. Its count starts anew.
  std::int64_t take(std::int32_t partition) {
    Counts& counts = at(partition);
    return counts.delivered.exchange(0) - counts.settled.exchange(0);
  }

 private:
  struct Counts {
    std::atomic<std::int64_t> delivered{0}, settled{0};
  };
  Counts& at(std::int32_t partition) { return counts_.at(static_cast<std::size_t>(partition)); }
  std::array<Counts, kPartitions> counts_;
};

}  // namespace demo
