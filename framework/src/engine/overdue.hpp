#pragma once
// Finds handlers that run for longer than handler_timeout, so that their stop_token is set.

#include <chrono>
#include <optional>
#include <stop_token>
#include <string>

#include "config/topic_plan.hpp"
#include "delivery/run_state.hpp"
#include "engine/end_bound.hpp"
#include "support/run_log.hpp"
#include "turnstile/types.hpp"

namespace turnstile::detail {

/// Whether the handler still runs although its stop_token was set, and the grace is over: it may never return.
inline bool ignores_stop(const RunState& watch, std::chrono::milliseconds handler_timeout,
                         std::chrono::steady_clock::time_point now) {
  const auto run = watch.look();
  return run && now - run->since >= handler_timeout + kGrace;
}

/// Call it often for every running handler. It logs once for each run, and returns its stop_source. The caller requests
/// a stop of that, without a lock: it runs the handler's callbacks, which may call anything, and may not return.
inline std::optional<std::stop_source> take_overdue(RunState& watch, const TopicPlan& plan, const RunLog& run_log) {
  const auto running = watch.look();
  if (!running || std::chrono::steady_clock::now() - running->since < plan.handler_timeout) return std::nullopt;
  auto stop = watch.time_out();
  if (!stop) return std::nullopt;
  run_log.warn(Code::handler_overdue, TopicPartition{plan.topic, running->partition}, plan.handler, running->offset,
               "the handler has run for longer than handler_timeout (" + std::to_string(plan.handler_timeout.count()) +
                   " ms), and its stop_token is set. Have the handler check its stop_token, or raise handler_timeout");
  return stop;
}

}  // namespace turnstile::detail
