#pragma once
// What a new owner of a partition knows if the last owner ended without releasing it. A message may have killed that
// owner, so messages are recorded before they run (ports/trials.hpp). A message that ran when a process died runs
// alone.

#include <limits>
#include <map>
#include <memory>
#include <optional>

#include "support/run_log.hpp"
#include "turnstile/ports/partitions.hpp"
#include "turnstile/ports/trials.hpp"

namespace turnstile::detail {

struct Suspicion {
  /// The partition ended here when it was claimed, so the last owner cannot have run messages from this offset on.
  Offset until = std::numeric_limits<Offset>::max();
  std::map<Offset, int> suspects{};  ///< each with the number of processes that died while they ran only this message

  [[nodiscard]] bool covers(Offset offset) const { return offset < until || suspects.contains(offset); }
  [[nodiscard]] bool is_suspect(Offset offset) const { return suspects.contains(offset); }
  [[nodiscard]] int deaths(Offset offset) const {
    const auto found = suspects.find(offset);
    return found == suspects.end() ? 0 : found->second;
  }
};
using SuspicionPtr = std::shared_ptr<const Suspicion>;

/// Null if the last owner released the partition. `first`: the lowest offset that is read. `until`: the offset at which
/// the partition ends now; absent: unknown. Throws what Trials::take_over() throws.
SuspicionPtr suspect(ports::Trials& trials, const ports::PartitionClaim& claim, Offset first,
                     std::optional<Offset> until, const RunLog& run_log);

}  // namespace turnstile::detail
