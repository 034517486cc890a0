#include "wire/pool.hpp"

#include <algorithm>
#include <string>

#include "turnstile/error.hpp"

namespace turnstile::postgres {

namespace {

/// Longer than a handler should run (handler_timeout).
constexpr std::chrono::seconds kLongestWait{30};
/// If the waiting thread has a connection itself.
constexpr std::chrono::seconds kLongestWaitOfBorrower{5};
/// Without a row, a pooler stands between this client and the server's process (hazard: pooled-session).
constexpr const char* kLimitLockWaits = R"(
SELECT pg_catalog.set_config('lock_timeout', $1::text, false) WHERE pg_catalog.pg_backend_pid() = $2::integer)";

}  // namespace

void Link::limit_lock_waits(std::chrono::milliseconds lock_timeout, std::chrono::milliseconds patience) {
  const std::string longest = std::to_string(lock_timeout.count());
  const std::string pid = std::to_string(PQbackendPID(connection.raw()));
  const char* const values[] = {longest.c_str(), pid.c_str()};
  try {
    connection.patience(patience);
    if (PQsendQueryParams(connection.raw(), kLimitLockWaits, 2, nullptr, values, nullptr, nullptr, 0) == 0)
      connection.fail();
    while (const Result result = connection.next_result()) {
      if (PQresultStatus(result.get()) == PGRES_TUPLES_OK) pooled = PQntuples(result.get()) == 0;
    }
    connection.patience(std::nullopt);
  } catch (const ConnectionLost& lost) {
    throw_lost(lost);
  }
}

Pool::Loan Pool::take() {
  std::int64_t generation = 0;
  {
    std::unique_lock lock(mutex_);
    wait_for_room(lock);
    if (is_cut()) throw StoreUnavailable("this process is shutting down and no longer waits for PostgreSQL");
    borrowers_.push_back(std::this_thread::get_id());
    generation = generation_;
    if (auto link = take_idle()) {
      link->used = true;
      return {*this, std::move(link)};
    }
  }
  try {
    auto link = std::make_unique<Link>(settings_, cut_);
    link->limit_lock_waits(settings_.lock_timeout, answer_within(settings_, {}));
    link->generation = generation;
    return {*this, std::move(link)};
  } catch (...) {
    give_back(nullptr, std::this_thread::get_id());
    throw;
  }
}

void Pool::wait_for_room(std::unique_lock<std::mutex>& lock) {
  const auto has_room = [&] { return is_cut() || most_ == 0 || borrowers_.size() < static_cast<std::size_t>(most_); };
  if (has_room()) return;
  const auto me = std::this_thread::get_id();
  const bool borrower = std::find(borrowers_.begin(), borrowers_.end(), me) != borrowers_.end();
  const auto longest = borrower ? kLongestWaitOfBorrower : kLongestWait;
  if (returned_.wait_for(lock, longest, has_room)) return;
  const std::string what = "all " + std::to_string(most_) +
                           " connections (postgres.connections, or one for each worker) were in use for " +
                           std::to_string(longest.count()) + " s";
  if (!borrower)
    throw StoreUnavailable(Code::connections_exhausted,
                           what + "; raise postgres.connections to the number of workers, or find the slow handlers");
  throw Error(
      Code::connections_exhausted,
      what +
          ", and a handler that holds one of them requests a second one, as Inbox::once() does on the consumer's own store; pass "
          "the handler's transaction, inbox.once(ctx.tx(), …), or raise postgres.connections above the number of workers");
}

std::unique_ptr<Link> Pool::take_idle() {
  if (idle_.empty()) return nullptr;
  const auto mine = std::find_if(idle_.rbegin(), idle_.rend(),
                                 [me = std::this_thread::get_id()](const auto& link) { return link->user == me; });
  auto& chosen = mine == idle_.rend() ? idle_.back() : *mine;
  std::swap(chosen, idle_.back());
  auto link = std::move(idle_.back());
  idle_.pop_back();
  return link;
}

void Pool::give_back(std::unique_ptr<Link> link, std::thread::id borrower) noexcept {
  if (link && !link->connection.idle()) link.reset();
  if (link) link->user = std::this_thread::get_id();
  {
    const std::lock_guard lock(mutex_);
    borrowers_.erase(std::find(borrowers_.begin(), borrowers_.end(), borrower));
    if (link && link->generation == generation_) idle_.push_back(std::move(link));
  }
  returned_.notify_one();
}  // a link of an older generation is closed here

void Pool::look_at_cut() noexcept {
  { const std::lock_guard lock(mutex_); }  // a waiting thread has seen the old value, and waits
  returned_.notify_all();
}

void Pool::renew() noexcept {
  std::vector<std::unique_ptr<Link>> closing;
  const std::lock_guard lock(mutex_);
  ++generation_;
  closing.swap(idle_);
}

}  // namespace turnstile::postgres
