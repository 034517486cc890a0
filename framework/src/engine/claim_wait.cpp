#include "engine/claim_wait.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace turnstile::detail {

namespace {

using std::chrono::milliseconds;

/// Long enough to look at the sessions that block a claim.
constexpr milliseconds kLeastWait{1'000};

ports::ClaimWait wait_for(milliseconds lock_timeout, milliseconds handler_timeout, std::string claimed,
                          const RunLog& log) {
  ports::ClaimWait wait(std::max(lock_timeout, kLeastWait));
  // A statement that waits for a lock stands still, too.
  wait.stuck_after = handler_timeout + lock_timeout;
  wait.on_ended = [claimed = std::move(claimed), &log](const std::string& session) noexcept {
    log.warn(
        Code::session_ended,
        session + " kept this consumer from claiming " + claimed +
            ", and has sent no statement for longer than handler_timeout and lock_timeout together. Its process is "
            "frozen or dead, or one of its statements takes too long. The consumer ended the session: its "
            "transaction is rolled back, and its messages run again");
  };
  return wait;
}

}  // namespace

ports::ClaimWait claim_wait(milliseconds lock_timeout, const TopicPlan& plan, const TopicPartition& at,
                            const RunLog& log) {
  return wait_for(lock_timeout, plan.handler_timeout, to_string(at), log);
}

ports::ClaimWait claim_wait(milliseconds lock_timeout, const std::vector<LanePtr>& lanes, const RunLog& log) {
  milliseconds longest{};
  for (const auto& lane : lanes) longest = std::max(longest, lane->topic.runner.plan().handler_timeout);
  std::string claimed = to_string(lanes.front()->place.at);
  if (lanes.size() > 1) claimed += " or another of " + std::to_string(lanes.size()) + " partitions";
  return wait_for(lock_timeout, longest, std::move(claimed), log);
}

}  // namespace turnstile::detail
