#pragma once
// Why a partition makes no progress, as far as this process knows: what the watchdog logs and Consumer::health() reports.

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/scheduler.hpp"
#include "turnstile/ports/limiter.hpp"

namespace turnstile {

struct Hold {
  std::optional<Offset> offset;  ///< of the message that waits; nothing: none was read yet
  std::string why;               ///< one sentence, which does not name the partition
};

/// It has not moved for `patience`, or what holds it does not end by itself. Inside Scheduler::locked() only.
bool is_stuck(const LaneState& lane, SteadyTime now, std::chrono::milliseconds patience);

/// Looks at one moment: made without the scheduler's lock, asked with it.
class Holds {
 public:
  /// `limiters` may be null.
  Holds(Scheduler& scheduler, const Limiters* limiters);
  /// Inside Scheduler::locked() only.
  [[nodiscard]] Hold of(const LaneState& lane, SteadyTime now) const;

 private:
  [[nodiscard]] std::optional<Hold> running_on(const LaneState& lane, Offset oldest, SteadyTime now) const;
  [[nodiscard]] std::string why_no_permit(const TopicState& topic) const;

  Scheduler& scheduler_;
  LimitersHealth limiters_;
  std::vector<std::pair<LanePtr, RunState*>> running_;
  std::map<const TopicState*, LimiterState> limits_;  ///< of the topics that have a limit
};

}  // namespace turnstile
