#pragma once
// Which messages were running when a process died. Implemented by adapters/postgres and adapters/memory; both pass the same
// contract suite.
//
//   the last owner died -> take_over() -> begin(), the handlers run, end() -> ... -> release()
//
// Nothing is recorded while owners release their partitions. After one has not, its successor records which messages are about to
// run. What a dead process has left so is a suspect; what ran alone then has killed it.

#include <span>
#include <vector>

#include "turnstile/types.hpp"

namespace turnstile {

/// A message that was running when a process died, and is not known to have been settled since.
struct Suspect {
  Offset offset = 0;  ///< of the message
  int deaths = 0;     ///< processes that died while they ran nothing else
  /// Member by member.
  auto operator<=>(const Suspect&) const = default;
};

/// Thread-safe. Every call may throw StoreUnavailable and StoreBusy; then it may have been carried out all the same, and may be
/// repeated.
class Trials {
 public:
  virtual ~Trials() = default;
  /// Makes suspects of what earlier owners have begun and not ended, and counts a death for each message that ran alone. Returns the
  /// suspects of the partition, in the order of offsets. The new owner reads from `first` on: suspects below it are dropped. The
  /// watermark is no such bound, since an owner may read from below it. Throws Fenced.
  virtual std::vector<Suspect> take_over(const Fence& fence, Offset first) = 0;
  /// These messages are about to run together. `alone`: the process runs nothing else. When it returns, the record outlives this
  /// process; a crash of the database server may lose it. Throws Fenced.
  virtual void begin(const Fence& fence, std::span<const Offset> offsets, bool alone) = 0;
  /// What was begun together has ended, and these of it are settled: they are no suspects any more. A death that a successor has counted
  /// meanwhile, because it took the partition of a process that lives, is taken back.
  virtual void end(const Fence& fence, std::span<const Offset> offsets, std::span<const Offset> settled) = 0;

  /// A partition that its owner gives up.
  struct Release {
    Fence fence;  ///< under which it was owned
    /// Whether the successor may trust what it finds. False: it has to be as careful as this owner was.
    bool is_proved = true;
  };
  /// The owner stops: nothing of the partition runs any more. Nothing happens to a partition whose epoch is over.
  virtual void release(std::span<const Release> partitions) = 0;
};

}  // namespace turnstile
