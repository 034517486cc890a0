#pragma once
// What became of a unit of work, for the caller that schedules its messages.

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "turnstile/observer.hpp"

namespace turnstile {

/// What the caller does with one message.
struct Verdict {
  enum class Kind : std::uint8_t {
    put_back,  ///< nothing was decided: the message keeps its place
    settled,   ///< its offset may be committed
    retry,     ///< it runs again after `delay`, as run number `attempt`
  };
  Kind kind = Kind::put_back;
  std::chrono::milliseconds delay{};
  int attempt = 1;
};

/// What became of a unit.
struct UnitResult {
  enum class End : std::uint8_t {
    ran,
    store_away,
    fenced,
    broken,  ///< a handler ended the transaction of its batch: the consumer must stop
  };
  std::vector<Verdict> verdicts;  ///< one for each message, in their order
  End end = End::ran;
  bool refused = false;    ///< a dead letter could not be kept: its message waits (verdict retry)
  bool row_waits = false;  ///< the same, because the store of its row is unavailable
  bool stopped = false;    ///< the same, because too many dead letters followed one another
  bool raises = false;     ///< an id was a duplicate, and the caller raises Duplicate
  std::string why;         ///< for store_away, fenced, broken and refused
  BatchReport counts;
};

}  // namespace turnstile
