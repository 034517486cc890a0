#pragma once
// Why a partition makes no progress, as far as this process knows. The watchdog logs it, and Consumer::health() reports
// it.

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/scheduler.hpp"
#include "turnstile/ports/limiter.hpp"

namespace turnstile::detail {

struct Hold {
  std::optional<Offset> offset;  ///< of the message that waits; absent: none was read yet
  std::string why;               ///< one sentence, without the partition's name
};

/// True if the lane has something to do: messages, a claim, or records in Kafka that may not have been read; and nobody
/// holds it back on purpose. Only inside Scheduler::locked().
bool waits(const LaneState& lane);

/// True if the lane has not moved for `patience`, or if its obstacle does not end by itself. Only inside
/// Scheduler::locked().
bool is_stuck(const LaneState& lane, SteadyTime now, std::chrono::milliseconds patience);

/// A view of one moment. Construct it without the scheduler's lock, and call it with the lock.
class Holds {
 public:
  /// `limiters` may be null.
  Holds(Scheduler& scheduler, const ports::Limiters* limiters);
  /// Only inside Scheduler::locked().
  [[nodiscard]] Hold of(const LaneState& lane, SteadyTime now) const;

 private:
  [[nodiscard]] std::optional<Hold> running_on(const LaneState& lane, Offset oldest, SteadyTime now) const;
  [[nodiscard]] std::string why_no_permit(const TopicState& topic) const;

  Scheduler& scheduler_;
  LimitersHealth limiters_;
  std::vector<WorkerAtWork> running_;
  std::map<const TopicState*, ports::LimiterState> limits_;  ///< of topics with a limit
};

}  // namespace turnstile::detail
