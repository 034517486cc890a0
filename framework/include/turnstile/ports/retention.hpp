#pragma once
// How long ids are kept, and the deletion of old ids. adapters/postgres and adapters/memory implement it; both pass the
// same contract suite.

#include <chrono>
#include <cstdint>
#include <optional>

#include "turnstile/message.hpp"
#include "turnstile/types.hpp"

namespace turnstile {

/// How long the store keeps the ids of a handler.
struct KeptIds {
  std::optional<std::chrono::seconds> kept_for;  ///< absent: forever; at least the longest requested duration
  std::optional<Timestamp> all_since;            ///< ids stored before this time may be deleted; absent: all are stored
};

}  // namespace turnstile

namespace turnstile::ports {

/// The result of a step of the purger.
struct PurgeStep {
  std::int64_t deleted = 0;           ///< number of ids
  std::chrono::milliseconds wait{0};  ///< wait this long before the next step; 0: there is more to do now
  bool rivalled = false;              ///< another purger is at work; nothing was done
};

/// Thread-safe. Every call may throw StoreUnavailable.
class Retention {
 public:
  virtual ~Retention() = default;
  /// Declares how long this consumer needs the handler's ids (absent: forever). Repeat it every ten minutes. A
  /// declaration stays in effect for the declared duration. A shorter one does not delete the ids that longer ones
  /// protect.
  virtual KeptIds keep_ids(HandlerId handler, std::optional<std::chrono::seconds> keep_for) = 0;
  /// Deletes up to `most` ids of any handler that are older than their declared duration. It is short, so that it
  /// blocks no other transaction for long. Throws StoreBusy.
  virtual PurgeStep purge_step(std::int64_t most) = 0;
};

}  // namespace turnstile::ports
