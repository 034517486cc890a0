#pragma once
// The messages that ran when a process died. adapters/postgres and adapters/memory implement it; both pass the same
// contract suite.
//
//   the last owner died -> take_over() -> begin(), the handlers run, end() -> ... -> release()
//   a handler outlasts its ownership -> release(runs_for) -> end(), or the process dies of it
//
// Nothing is recorded as long as owners release their partitions. If an owner did not, its successor records which
// messages are about to run. If the successor dies too, its recorded messages are suspects. A message that ran alone
// has killed its process.

#include <chrono>
#include <optional>
#include <span>
#include <vector>

#include "turnstile/types.hpp"

namespace turnstile::ports {

/// A message that ran when a process died, and is not known to be settled since.
struct Suspect {
  Offset offset = 0;  ///< of the message
  int deaths = 0;     ///< processes that died while they ran only this message
  /// Compares all members.
  auto operator<=>(const Suspect&) const = default;
};

/// Thread-safe. Every call may throw StoreUnavailable and StoreBusy. The call may have been carried out all the same,
/// and may be repeated.
class Trials {
 public:
  virtual ~Trials() = default;
  /// Makes suspects of the messages that earlier owners began and did not end. Counts a death for each message that ran
  /// alone. Returns the suspects of the partition, in offset order.
  /// The new owner reads from `first` on, so suspects below it are dropped. The watermark cannot take its place,
  /// because an owner may read from below the watermark. Throws Fenced.
  virtual std::vector<Suspect> take_over(const Fence& fence, Offset first) = 0;
  /// These messages are about to run together. `alone`: the process runs nothing else, and starts nothing else. When it
  /// returns, the record survives a crash of this process, and of the database server. Throws Fenced.
  virtual void begin(const Fence& fence, std::span<const Offset> offsets, bool alone) = 0;
  /// The messages that began together have ended, and `settled` of them are settled: they are no suspects any more. If
  /// a successor counted a death in the meantime, because it took over from a process that lives, this undoes it. In
  /// another history of the store the messages stay recorded, but a death does not count any more.
  virtual void end(const Fence& fence, std::span<const Offset> offsets, std::span<const Offset> settled) = 0;

  /// A partition that its owner releases.
  struct Release {
    Fence fence;  ///< the fence of its owner
    /// Whether the successor may trust the partition's state. False: the successor must be careful. Messages of the
    /// partition may then still run, and their transactions are not waited for.
    bool is_proved = true;
    /// Handlers still run, and the process goes on. If they have not ended after this time, and the call was not
    /// repeated, the process has died of them. Absent: nothing runs, or the process is about to end by itself.
    std::optional<std::chrono::milliseconds> runs_for{};
  };
  /// The owner lives, and gives these partitions up: what it has begun is not suspected, except where `runs_for` is set
  /// and the messages do not end(). A later call for the same fence gives them that time anew, or without `runs_for`
  /// ends that, also in another history of the store. If the epoch is over, nothing else of the partition changes.
  virtual void release(std::span<const Release> partitions) = 0;
};

}  // namespace turnstile::ports
