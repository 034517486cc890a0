#pragma once
// What a new owner of a partition knows after its last owner ended without releasing it. That one may have died of a message: so
// what runs is recorded first (ports/trials.hpp), and what was running when a process died runs while nothing else does.

#include <limits>
#include <map>
#include <memory>
#include <optional>

#include "support/run_log.hpp"
#include "turnstile/ports/inbox.hpp"

namespace turnstile {

struct Suspicion {
  /// The last owner can have run nothing from here on: the partition ended here when it was claimed.
  Offset until = std::numeric_limits<Offset>::max();
  std::map<Offset, int> suspects{};  ///< with the processes that died while they ran nothing else

  [[nodiscard]] bool covers(Offset offset) const { return offset < until || suspects.contains(offset); }
  [[nodiscard]] bool is_suspect(Offset offset) const { return suspects.contains(offset); }
  [[nodiscard]] int deaths(Offset offset) const {
    const auto found = suspects.find(offset);
    return found == suspects.end() ? 0 : found->second;
  }
};
using SuspicionPtr = std::shared_ptr<const Suspicion>;

/// Null where the last owner has released the partition. `first`: nothing below it is read. `until`: where the partition ends now;
/// nothing: that is not known. Throws as Trials::take_over() does.
SuspicionPtr suspect(Trials& trials, const PartitionClaim& claim, Offset first, std::optional<Offset> until,
                     const RunLog& run_log);

}  // namespace turnstile
