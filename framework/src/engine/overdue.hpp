#pragma once
// Sets the stop_token of handlers that run for longer than handler_timeout.

#include <chrono>
#include <string>

#include "config/topic_plan.hpp"
#include "delivery/run_state.hpp"
#include "support/run_log.hpp"
#include "turnstile/types.hpp"

namespace turnstile::detail {

/// Call it often for every running handler. It logs once for each run.
inline void stop_if_overdue(RunState& watch, const TopicPlan& plan, const RunLog& run_log) {
  const auto running = watch.look();
  if (!running || std::chrono::steady_clock::now() - running->since < plan.handler_timeout) return;
  auto stop = watch.time_out();
  if (!stop) return;
  run_log.warn(Code::handler_overdue, TopicPartition{plan.topic, running->partition}, plan.handler, running->offset,
               "the handler has run for longer than handler_timeout (" + std::to_string(plan.handler_timeout.count()) +
                   " ms), and its stop_token is set. Have the handler check its stop_token, or raise handler_timeout");
  stop->request_stop();  // last: it runs the handler's callbacks, which may not return
}

}  // namespace turnstile::detail
