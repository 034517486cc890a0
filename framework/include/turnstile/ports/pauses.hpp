#pragma once
// Which topics, partitions and keys are paused. adapters/postgres and adapters/memory implement it; both pass the same
// contract suite.

#include <chrono>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "turnstile/message.hpp"

namespace turnstile::ports {

/// What a pause stops: a topic, a partition of it, a key, or a key within a partition.
struct PausedPart {
  std::string topic;                        ///< the topic
  std::optional<std::int32_t> partition{};  ///< absent: all partitions
  std::optional<std::string> key{};         ///< the bytes of the record's key; absent: all messages
  std::string breaker_of{};                 ///< empty: an operator's pause, for all consumer groups. Otherwise: of the
                                            ///< circuit breaker of this group, for this group only
  auto operator<=>(const PausedPart&) const = default;  ///< compares all members
};

/// A pause. Until it ends, no handler starts for a message of the part.
struct Pause {
  PausedPart part;                                  ///< what is paused
  std::string by;                                   ///< the operator, or the process of the circuit breaker
  std::string why;                                  ///< for people; may be empty
  std::optional<std::chrono::milliseconds> left{};  ///< until it ends by itself, by the store's clock; absent: never
  Timestamp since{};                                ///< when it began, by the store's clock
  std::optional<Timestamp> until{};                 ///< when it ends by itself, by the store's clock; absent: never
};

/// Thread-safe. Every call may throw StoreUnavailable and StoreBusy.
class Pauses {
 public:
  virtual ~Pauses() = default;
  /// All pauses that have not ended, of all groups, in the order of their parts. That of a circuit breaker stays, with
  /// 0 left, until end() is called: then its processes may try the handler.
  virtual std::vector<Pause> active() = 0;
  /// Pauses `pause.part` for `pause.left`, from now on; `since` and `until` are ignored. If it is paused already, `by`,
  /// `why` and the end are replaced.
  virtual void begin(const Pause& pause) = 0;
  /// Ends the pause of exactly this part. False: it was not paused.
  virtual bool end(const PausedPart& part) = 0;
};

}  // namespace turnstile::ports
