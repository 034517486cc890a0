#include "inbox/calls.hpp"

#include <algorithm>
#include <optional>

#include "turnstile/error.hpp"

namespace turnstile::postgres {

namespace {

/// `lock_timeout`: what the statements set. Absent: they set none, and the session's applies (Link::limit_lock_waits).
std::vector<Result> call(Shared& shared, Pool& pool, std::optional<std::chrono::milliseconds> lock_timeout,
                         const Fill& fill, bool replicated = false, const std::optional<StuckSessions>& stuck = {}) {
  const auto wait = std::max(lock_timeout.value_or(shared.settings.lock_timeout), shared.settings.lock_timeout);
  for (;;) {
    Pool::Loan link = pool.take();
    try {
      link->connection.patience(answer_within(shared.settings, wait));
      LockWatch watch(shared.settings, link->connection, lock_timeout.value_or(shared.settings.lock_timeout),
                      shared.cut);
      if (stuck) watch.end(*stuck);
      link->pipeline.next_transaction();
      static_cast<void>(link->connection.unreplicated());
      fill(link->pipeline);
      Answers answers;
      link->pipeline.finish(answers);
      if (!answers.failure && replicated && link->connection.unreplicated())
        throw StoreUnavailable("the wait for the synchronous replicas of PostgreSQL was cancelled; ask again");
      if (!answers.failure) return std::move(answers.kept);
      const Failure failure = *answers.failure;
      const std::string user = link->connection.user();
      // Inside a transaction the connection is not idle any more. The pool therefore closes it, which also ends the
      // transaction.
      if (failure.pooler || is_of_this_server(failure.error.sqlstate)) {
        link->connection.condemn();
        pool.renew();
      }
      if (failure.error.sqlstate == "55P03") throw StoreBusy(describe(failure.error) + watch.holders(Wanted::rows));
      if (failure.stale_plan) throw StoreBusy(describe(failure.error));
      throw_store_error(failure.error, shared.settings.schema, user);
    } catch (const ConnectionLost& lost) {
      if (!link->used || lost.unanswered) throw_lost(lost);
      pool.renew();
    }
  }
}

Fill in_transaction(const Shared& shared, std::chrono::milliseconds lock_timeout, const Fill& fill) {
  return [&shared, lock_timeout, &fill](Pipeline& pipeline) {
    pipeline.add(shared.statements.begin, kCaller);
    pipeline.arguments().add_int(lock_timeout.count());
    pipeline.arguments().add_int(std::max(lock_timeout, shared.settings.lock_timeout).count());
    pipeline.add(shared.statements.timeouts, kCaller);
    fill(pipeline);
    pipeline.add("COMMIT", kCaller);
  };
}

}  // namespace

std::vector<Result> call(Shared& shared, const Fill& fill) { return call(shared, shared.calls, fill); }

std::vector<Result> call(Shared& shared, Pool& pool, const Fill& fill) {
  return call(shared, pool, std::nullopt, fill);
}

std::vector<Result> call_replicated(Shared& shared, Pool& pool, const Fill& fill) {
  return call(shared, pool, std::nullopt, fill, true);
}

std::vector<Result> call_in_transaction(Shared& shared, std::chrono::milliseconds lock_timeout, const Fill& fill,
                                        const std::optional<StuckSessions>& stuck) {
  return call(shared, shared.calls, lock_timeout, in_transaction(shared, lock_timeout, fill), false, stuck);
}

std::vector<Result> call_in_transaction(Shared& shared, const Fill& fill) {
  return call_in_transaction(shared, shared.settings.lock_timeout, fill);
}

}  // namespace turnstile::postgres
