#pragma once
// The store's own calls: short, on connections of their own, and such that each may be repeated.

#include <chrono>
#include <functional>
#include <vector>

#include "inbox/session.hpp"

namespace turnstile::postgres {

using Fill = std::function<void(Pipeline&)>;

/// Runs what `fill` queues, and returns what it keeps; a connection that was lost while it lay idle is replaced once.
std::vector<Result> call(Shared& shared, const Fill& fill);
std::vector<Result> call(Shared& shared, Pool& pool, const Fill& fill);
/// The same for statements that may wait for locks so long.
std::vector<Result> call(Shared& shared, Pool& pool, std::chrono::milliseconds lock_timeout, const Fill& fill);
/// In a transaction, for calls without which a program does not start: a lock is waited for as long as the settings say, and then StoreBusy
/// tells who holds it.
std::vector<Result> call_at_start(Shared& shared, const Fill& fill);
/// The same in one transaction, which waits for locks at most so long.
std::vector<Result> call_in_transaction(Shared& shared, std::chrono::milliseconds lock_timeout, const Fill& fill);

}  // namespace turnstile::postgres
