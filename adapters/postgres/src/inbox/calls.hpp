#pragma once
// The store's own calls: short, on connections of their own, and repeatable.

#include <chrono>
#include <functional>
#include <optional>
#include <vector>

#include "inbox/session.hpp"
#include "wire/locks.hpp"

namespace turnstile::postgres {

using Fill = std::function<void(Pipeline&)>;

/// Runs the statements that `fill` queues, and returns the results that it keeps. A connection that was lost while idle
/// is replaced once.
std::vector<Result> call(Shared& shared, const Fill& fill);
std::vector<Result> call(Shared& shared, Pool& pool, const Fill& fill);
/// Throws StoreUnavailable if the server was told not to wait for its synchronous replicas any longer.
std::vector<Result> call_replicated(Shared& shared, Pool& pool, const Fill& fill);
/// The same in one transaction, which waits for locks up to `lock_timeout` (absent: that of the settings), and ends
/// stuck sessions meanwhile. Then StoreBusy names the sessions that hold the lock.
std::vector<Result> call_in_transaction(Shared& shared, std::chrono::milliseconds lock_timeout, const Fill& fill,
                                        const std::optional<StuckSessions>& stuck = {});
std::vector<Result> call_in_transaction(Shared& shared, const Fill& fill);

}  // namespace turnstile::postgres
