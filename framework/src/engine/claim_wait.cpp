#include "engine/claim_wait.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace turnstile::detail {

namespace {

using std::chrono::milliseconds;

/// Long enough to look at the sessions that block a claim.
constexpr milliseconds kLeastWait{1'000};
/// None of the statements of Turnstile's own takes so long, unless it waits for a lock.
constexpr milliseconds kOwnStatement{30'000};

/// Handlers that run in no transaction may take hours, and hold no session meanwhile.
milliseconds longest_statement(const TopicPlan& plan) {
  const bool in_transaction = plan.mode == Mode::transactional || numbers_records(plan.mode);
  return in_transaction ? plan.handler_timeout : std::min(plan.handler_timeout, kOwnStatement);
}

ports::ClaimWait wait_for(milliseconds lock_timeout, milliseconds statement, std::string claimed, const RunLog& log) {
  ports::ClaimWait wait(std::max(lock_timeout, kLeastWait));
  // A statement that waits for a lock stands still, too.
  wait.stuck_after = statement + lock_timeout;
  wait.on_ended = [claimed = std::move(claimed), &log, after = *wait.stuck_after](const std::string& session) noexcept {
    log.warn(Code::session_ended,
             session + " kept this consumer from claiming " + claimed + ", and has sent no statement for longer than " +
                 std::to_string(after.count()) +
                 " ms. Its process is frozen or dead, or one of its statements takes too long. The consumer ended the "
                 "session: its transaction is rolled back, and its messages run again");
  };
  return wait;
}

}  // namespace

ports::ClaimWait claim_wait(milliseconds lock_timeout, const TopicPlan& plan, const TopicPartition& at,
                            const RunLog& log) {
  return wait_for(lock_timeout, longest_statement(plan), to_string(at), log);
}

ports::ClaimWait claim_wait(milliseconds lock_timeout, const std::vector<LanePtr>& lanes, const RunLog& log) {
  milliseconds longest{};
  for (const auto& lane : lanes) longest = std::max(longest, longest_statement(lane->topic.runner.plan()));
  std::string claimed = to_string(lanes.front()->place.at);
  if (lanes.size() > 1) claimed += " or another of " + std::to_string(lanes.size()) + " partitions";
  return wait_for(lock_timeout, longest, std::move(claimed), log);
}

}  // namespace turnstile::detail
