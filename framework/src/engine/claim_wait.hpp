#pragma once
// How a claim waits for the last owner of a partition.

#include <chrono>
#include <vector>

#include "engine/lane_state.hpp"
#include "support/run_log.hpp"
#include "turnstile/ports/partitions.hpp"

namespace turnstile::detail {

/// A session that stands still in a transaction for longer than this belongs to a process that is frozen or dead, or to
/// a statement that overran its handler's time. A handler's own time between two statements is limited by the server.
/// `log` must outlive the claim.
ports::ClaimWait claim_wait(std::chrono::milliseconds lock_timeout, const TopicPlan& plan, const TopicPartition& at,
                            const RunLog& log);
/// The same for several partitions: the longest of their handlers' times.
ports::ClaimWait claim_wait(std::chrono::milliseconds lock_timeout, const std::vector<LanePtr>& lanes,
                            const RunLog& log);

}  // namespace turnstile::detail
