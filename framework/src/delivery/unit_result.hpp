#pragma once
// The result of a unit, for the caller that schedules its messages.

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "turnstile/observer.hpp"

namespace turnstile::detail {

/// The decision about one message, which the caller carries out.
struct Verdict {
  enum class Kind : std::uint8_t {
    put_back,  ///< undecided: the message keeps its place
    settled,   ///< its offset may be committed
    retry,     ///< it runs again after `delay`, as run number `attempt`
  };
  Kind kind = Kind::put_back;
  std::chrono::milliseconds delay{};
  int attempt = 1;
};

struct UnitResult {
  enum class End : std::uint8_t {
    ran,
    store_unavailable,
    fenced,
    broken,  ///< a handler ended the transaction of its batch: the consumer must stop
  };
  std::vector<Verdict> verdicts;  ///< one for each message, in the order of the messages
  End end = End::ran;
  bool refused = false;    ///< a dead letter could not be stored: its message waits (verdict retry)
  bool row_waits = false;  ///< refused, because the store of its row is unavailable or busy
  bool stopped = false;    ///< refused, because of too many consecutive dead letters
  bool raises = false;     ///< an id was a duplicate, and the caller raises Duplicate
  std::string why;         ///< for store_unavailable, fenced, broken and refused
  BatchReport counts;
};

}  // namespace turnstile::detail
