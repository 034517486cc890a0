#pragma once
// The owner of each partition, and how far the partition is settled. adapters/postgres and adapters/memory implement
// it; both pass the same contract suite.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "turnstile/types.hpp"

namespace turnstile::ports {

/// How far a handler has done the numbered records of a partition (modes by_offset and numbered).
struct HandlerProgress {
  HandlerId handler;  ///< the handler
  Offset next = 0;    ///< it has done every record below
};

/// What the store knows of a partition that was just assigned.
struct PartitionClaim {
  TopicPartition at;                ///< the partition
  Fence fence;                      ///< with the new epoch, and the history of the store
  std::optional<Offset> watermark;  ///< every message below it is settled in this database
  /// Of each handler that has done numbered records of this incarnation, also if it has another mode now. The watermark
  /// lags behind it.
  std::vector<HandlerProgress> progress{};
  std::int32_t incarnation = 0;  ///< how often the topic was found recreated; part of an `offset` message id
  /// True if the last owner released the partition, or there was none. False if it may have died (see Trials).
  bool is_clean = true;
  std::string store{};  ///< names the store that counts the epoch, equally in all processes

  /// The progress of this handler. Absent: it has done no numbered record.
  [[nodiscard]] std::optional<Offset> progress_of(HandlerId handler) const {
    for (const HandlerProgress& each : progress) {
      if (each.handler == handler) return each.next;
    }
    return std::nullopt;
  }
  /// The highest progress of all handlers.
  [[nodiscard]] std::optional<Offset> highest_progress() const {
    std::optional<Offset> highest;
    for (const HandlerProgress& each : progress) highest = std::max(highest, std::optional(each.next));
    return highest;
  }
};

/// How far a partition is settled, as its owner reports it.
struct WatermarkUpdate {
  Fence fence;                    ///< the fence of its owner
  Offset watermark = 0;           ///< every message below it is settled
  std::optional<Offset> known{};  ///< the store's last known watermark
};

/// The result of a reported watermark.
enum class WatermarkState : std::uint8_t {
  moved,     ///< stored, or the store's watermark is higher
  behind,    ///< unchanged: the store has a lower watermark than `known`, so it lost commits
  not_ours,  ///< unchanged: the epoch is over, or the store has another history
};

/// How long a claim waits for open transactions of the old owner, and which of them it ends.
struct ClaimWait {
  /// Waits, and ends none of them.
  template <class Rep, class Period>
  ClaimWait(std::chrono::duration<Rep, Period> most) : lock_timeout(most) {}  // NOLINT(google-explicit-constructor)

  std::chrono::milliseconds lock_timeout;  ///< then the claim fails
  /// A session of the old owner that blocks the claim, and has stood still for so long: its process is frozen or dead,
  /// or its statement overruns. The store ends it while the claim waits, if it can. Absent: it ends none.
  std::optional<std::chrono::milliseconds> stuck_after{};
  /// Called on the caller's thread for each session that was ended, with its description. Must not throw.
  std::function<void(const std::string& session)> on_ended{};
};

/// Thread-safe. Every call may throw StoreUnavailable, and StoreBusy (nothing was done; repeat it).
class Partitions {
 public:
  virtual ~Partitions() = default;
  /// Increments the epochs. Waits for open transactions of the old owner, then throws StoreBusy.
  virtual std::vector<PartitionClaim> claim_partitions(const std::string& group,
                                                       std::span<const TopicPartition> partitions,
                                                       const ClaimWait& wait) = 0;
  /// Moves watermarks forward, never back, and only under the given fence. The results have the order of `updates`.
  virtual std::vector<WatermarkState> advance_watermarks(std::span<const WatermarkUpdate> updates) = 0;
  /// The topic was recreated. Increments the incarnation, and sets the watermark to the new log's first offset. Returns
  /// the new incarnation. `at_least`: it is not lower. The store can have forgotten later incarnations that the caller
  /// knows. Throws Fenced.
  virtual std::int32_t begin_incarnation(const Fence& fence, Offset first, std::int32_t at_least) = 0;
};

}  // namespace turnstile::ports
