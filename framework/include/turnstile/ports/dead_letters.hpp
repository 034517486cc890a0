#pragma once
// The table of dead letters. adapters/postgres and adapters/memory implement it; both pass the same
// contract suite.

#include <optional>
#include <set>
#include <string>

#include "turnstile/dead_reason.hpp"
#include "turnstile/message.hpp"
#include "turnstile/ports/retries.hpp"
#include "turnstile/types.hpp"

namespace turnstile::ports {

/// A message that will not run, and why.
struct DeadMessage {
  HandlerId handler;                                ///< the handler that refused it
  Fence fence;                                      ///< its slot identifies the partition
  OwnedMessage record;                              ///< the record as it was
  std::optional<MessageId> id;                      ///< absent if the record had none
  DeadReason reason{};                              ///< why it will not run
  std::string error;                                ///< the last error, for people
  int attempts = 0;                                 ///< how often its handler was started and failed by itself
  std::optional<TopicPartitionOffset> dead_letter;  ///< where it was produced; absent: parked in the table only
  std::optional<RetryRef> retry{};                  ///< it came back for this attempt; its row is removed
};

/// Thread-safe. Every call may throw StoreUnavailable, and StoreBusy (nothing was done; repeat it).
class DeadLetterStore {
 public:
  virtual ~DeadLetterStore() = default;
  /// Stores it for `turnstile dlq`. False if this record of this handler is stored already; then nothing changes.
  /// Throws Fenced.
  virtual bool record_dead(const DeadMessage& message) = 0;
  /// The offsets from `first` to `last` of the partition that record_dead() has stored with this reason (absent: with
  /// any). None if the store has another history than the fence. Only the owner of the partition adds to them.
  virtual std::set<Offset> dead_between(HandlerId handler, const Fence& fence, Offset first, Offset last,
                                        std::optional<DeadReason> reason = {}) = 0;
};

}  // namespace turnstile::ports
