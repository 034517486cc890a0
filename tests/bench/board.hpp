#pragma once
// A file mapped into all processes of a measurement, in which handlers count themselves. The number of running handlers
// therefore does not depend on the limiter. tests/bench/tokens.py reads the same layout.

#include <atomic>
#include <cstdint>
#include <string>

namespace bench {

/// A process. Times are CLOCK_MONOTONIC nanoseconds.
struct Slot {
  std::atomic<std::int64_t> starts{0};
  std::atomic<std::int64_t> stops{0};
  std::atomic<std::int64_t> held_ns{0};      ///< sum over all ended runs
  std::atomic<std::int64_t> assigned_ns{0};  ///< when it last got a partition
  std::atomic<std::int64_t> ready{0};        ///< the process is running
  std::int64_t unused[3]{};
};

struct BoardLayout {
  std::atomic<std::int64_t> running{0};
  std::atomic<std::int64_t> most{0};  ///< that ran at once; tokens.py resets it
  std::atomic<std::int64_t> gone{0};  ///< of `running`: handlers of killed processes; tokens.py sets it
  std::int64_t unused[5]{};
  Slot slots[8];
};
static_assert(sizeof(BoardLayout) == 64 + 8 * 64 && std::atomic<std::int64_t>::is_always_lock_free);

class Board {
 public:
  /// The file must exist and be large enough.
  Board(const std::string& file, std::int64_t slot);

  void start();
  /// `started_ns` is now_ns() at its start.
  void stop(std::int64_t started_ns);
  [[nodiscard]] Slot& slot() { return *slot_; }

 private:
  BoardLayout* all_;
  Slot* slot_;
};

}  // namespace bench
