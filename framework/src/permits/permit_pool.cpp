#include "permits/permit_pool.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "tokens/planted.hpp"

namespace turnstile::detail {

namespace {

// A token contains the number of the life in which it was taken; 0: a token of the reserve.
constexpr int kSerialBits = 40;
constexpr std::uint64_t kSerialMask = (std::uint64_t{1} << kSerialBits) - 1;
/// The free permits of an account that is over: a number so low that no release makes it positive.
constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::min() / 2;
/// Whether permits that were taken before a deadline return to the pool when they are released after it.
bool are_credited_late() { return !TURNSTILE_PLANTED(late_permit_not_credited); }

}  // namespace

PermitPool::PermitPool(std::function<Micros()> clock, std::function<void()> ring)
    : clock_(std::move(clock)), ring_(std::move(ring)) {
  accounts_.push_back(std::make_unique<Account>());
  lives_.push_back(std::make_unique<Life>(1, *accounts_.back()));
  life_.store(lives_.back().get());
}

// --- threads ---------------------------------------------------------------------------------------------------------

PermitPool::Party PermitPool::add_party(bool outlives_fence) {
  const std::lock_guard lock(mutex_);
  return line_.add_party(outlives_fence);
}

void PermitPool::remove_party(Party party) {
  PermitLine::Queues::node_type gone;  // the waiting callbacks are destroyed without the lock
  {
    const std::lock_guard lock(mutex_);
    line_.each_waiter([&](Party of, const Waiter& waiter) {
      if (of == party && is_possible(waiter.count)) waiting_.fetch_sub(waiter.count);
    });
    gone = line_.remove_party(party);
  }
  serve();
}

PermitPool::Taken PermitPool::try_take(Count count, Party party) {
  if (waiting_.load() > 0) return {};
  return take(count, party);
}

PermitPool::Taken PermitPool::try_take_as_woken(Party party) { return take(1, party); }

/// The life is read before the clock. If the life was read after a deadline had passed, the pool is therefore closed.
PermitPool::Taken PermitPool::take(Count count, Party party) {
  const auto wanted = static_cast<std::int64_t>(count);
  Life& life = *life_.load();
  if (!is_open()) return take_of_reserve(wanted);
  if (PermitLine::outlives_fence(party) && !admits_outliving_.load()) return {};
  for (std::int64_t free = life.account.free.load();;) {
    if (free < wanted) return {};
    if (life.account.free.compare_exchange_weak(free, free - wanted)) break;
  }
  const auto now = static_cast<Count>(life.in_use.fetch_add(wanted) + wanted);
  for (Count seen = most_.load(std::memory_order_relaxed); seen < now && !most_.compare_exchange_weak(seen, now);) {
  }
  if (tried_until_.load(std::memory_order_relaxed) != 0) tried_until_.store(0);
  if (count > 1) {
    together_.store(count, std::memory_order_relaxed);
    together_in_use_.fetch_add(count, std::memory_order_relaxed);
  }
  const std::uint64_t serial = last_serial_.fetch_add(1, std::memory_order_relaxed) + 1;
  return {.token = life.number << kSerialBits | (serial & kSerialMask), .lost = life.lost.get_token()};
}

PermitPool::Taken PermitPool::take_of_reserve(std::int64_t count) {
  for (std::int64_t used = reserved_in_use_.load();;) {
    if (used + count > reserve_.load() || clock_() >= reserve_until_.load()) return {};
    if (reserved_in_use_.compare_exchange_weak(used, used + count)) break;
  }
  taken_of_reserve_.fetch_add(1, std::memory_order_relaxed);
  return {.token = (last_serial_.fetch_add(1, std::memory_order_relaxed) + 1) & kSerialMask, .lost = [this] {
            const std::lock_guard lock(reserve_mutex_);
            return reserve_lost_.get_token();
          }()};
}

bool PermitPool::has_one() const {
  if (is_open()) return life_.load()->account.free.load() > 0;
  return reserved_in_use_.load() < reserve_.load() && clock_() < reserve_until_.load();
}

void PermitPool::refused(Count count) {
  if (!is_possible(count)) return;
  tried_.store(count);
  tried_until_.store(clock_() + kTryCounts);
  if (in_use() + waiting_.load() + count > told_.load()) ring_();
}

void PermitPool::give_back(std::uint64_t token, Count count) {
  const auto number = token >> kSerialBits;
  const auto back = static_cast<std::int64_t>(count);
  if (number == 0) {
    reserved_in_use_.fetch_sub(back);
    if (waiting_.load() > 0) serve();
    return;
  }
  Life* life = life_.load();
  if (life->number != number) {
    const std::lock_guard lock(mutex_);
    if (number > lives_.size()) return;
    life = lives_[number - 1].get();
  }
  if (count > 1) together_in_use_.fetch_sub(count, std::memory_order_relaxed);
  life->in_use.fetch_sub(back);  // before they are free, so that it never counts free permits
  const Life& now = *life_.load();
  if (&life->account != &now.account) return ring_();
  if (life != &now && !are_credited_late()) return ring_();
  credit(life->account, back);
}

bool PermitPool::holds(std::uint64_t token) const {
  const auto number = token >> kSerialBits;
  if (number == 0) return clock_() < reserve_until_.load();  // of no life, so no lease ends it
  return life_.load()->number == number && clock_() < held_until_.load();
}

/// Permits that become idle: they first pay the debt to the member, and the rest is free.
void PermitPool::credit(Account& account, std::int64_t back) {
  bool paid = false, freed = false;
  while (back > 0) {
    const std::int64_t surrendered = account.settle_debt(back);
    paid = paid || surrendered > 0;
    back -= surrendered;
    if (back == 0) break;
    account.free.fetch_add(back);
    freed = true;
    // A surrender that was ordered after settle_debt() has not seen them.
    back = account.withdraw_idle();
  }
  if (paid) ring_();
  if (freed && waiting_.load() > 0) serve();
}

// --- waiting callers -------------------------------------------------------------------------------------------------

std::uint64_t PermitPool::take_later(Count count, bool urgent, std::function<void(Taken)> deliver, Party party) {
  return stand_in_line({.count = count, .urgent = urgent, .deliver = std::move(deliver)}, party);
}

void PermitPool::when_free(std::function<void()> wake, Party party) { stand_in_line({.wake = std::move(wake)}, party); }

std::uint64_t PermitPool::stand_in_line(Waiter waiter, Party party) {
  std::uint64_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    if (is_possible(waiter.count)) waiting_.fetch_add(waiter.count);
    number = line_.add(std::move(waiter), party);
  }
  serve();
  if (const Count waiting = waiting_.load(); waiting > 0 && in_use() + waiting > told_.load()) ring_();
  return number;
}

bool PermitPool::withdraw(std::uint64_t waiter) {
  Waiter gone;  // destroyed without the lock: it may hold the last reference to its party
  {
    const std::lock_guard lock(mutex_);
    const PermitLine::Place found = line_.find(waiter);
    if (!found) return false;
    gone = leave_line(found);
  }
  serve();  // it may have blocked callers that need fewer permits
  ring_();  // the member must not request permits that no caller wants
  return true;
}

PermitPool::Waiter PermitPool::leave_line(const PermitLine::Place& place) {
  Waiter waiter = line_.remove(place);
  if (is_possible(waiter.count)) waiting_.fetch_sub(waiter.count);
  return waiter;
}

/// Gives free permits to the waiting callers, one after another, in the order of PermitLine::next_served().
void PermitPool::serve() {
  std::unique_lock lock(mutex_);
  for (;;) {
    const auto most = is_open() ? limit_.load() : static_cast<Count>(reserve_.load());
    const PermitLine::Place next = line_.next_served(most, admits_outliving_.load());
    if (!next) return;
    const bool wakes = next.at->wake != nullptr;
    Taken taken;
    if (wakes) {
      if (!has_one()) return;
    } else if (taken = take(next.at->count, next.party); !taken) {
      return;
    }
    line_.count_as_served(next);
    {
      const Waiter waiter = leave_line(next);
      lock.unlock();
      if (wakes) waiter.wake();
      else waiter.deliver(std::move(taken));
    }
    lock.lock();
  }
}

void PermitPool::expect(Count at_once) {
  for (Count seen = expected_.load(); seen < at_once && !expected_.compare_exchange_weak(seen, at_once);) {
  }
}

// --- the member ------------------------------------------------------------------------------------------------------

void PermitPool::order(const tokens::Order& order) {
  const auto total = static_cast<std::int64_t>(order.total);
  Account& account = life_.load()->account;
  switch (order.kind) {
    case tokens::Order::Kind::open: {
      account.free.fetch_add(total - account.opened.exchange(total));
      serve();
      break;
    }
    case tokens::Order::Kind::surrender: {
      account.surrender_to.store(total);
      credit(account, account.withdraw_idle());
      break;
    }
    case tokens::Order::Kind::forfeit: {
      forfeit(total);
      break;
    }
  }
}

void PermitPool::begin_life(Account& account) {
  lives_.push_back(std::make_unique<Life>(lives_.size() + 1, account));
  life_.store(lives_.back().get());
}

void PermitPool::forfeit(std::int64_t total) {
  Life* old = nullptr;
  {
    const std::lock_guard lock(mutex_);
    old = life_.load();
    accounts_.push_back(std::make_unique<Account>());
    Account& account = *accounts_.back();
    account.opened.store(total);
    account.surrender_to.store(total);
    account.surrendered.store(total);
    begin_life(account);
    old->account.free.store(kNone);
  }
  old->lost.request_stop();
}

void PermitPool::cancel() {
  Life* old = nullptr;
  {
    const std::lock_guard lock(mutex_);
    old = life_.load();
    begin_life(old->account);
  }
  old->lost.request_stop();
}

void PermitPool::open_until(Micros time) {
  open_until_.store(time);
  if (waiting_.load() > 0) serve();
}

void PermitPool::reserve_until(Micros time) {
  reserve_until_.store(time);
  std::stop_source ended(std::nostopstate);
  {
    const std::lock_guard lock(reserve_mutex_);
    if (clock_() < time) return;
    if (reserved_in_use_.load() == 0 || reserve_lost_.stop_requested()) return;
    ended = std::exchange(reserve_lost_, std::stop_source());
  }
  ended.request_stop();
}

void PermitPool::reserve(Count count) { reserve_.store(static_cast<std::int64_t>(count)); }

void PermitPool::limit(Count count) {
  if (limit_.load() == count) return;
  {
    const std::lock_guard lock(mutex_);
    limit_.store(count);
    Count waiting = 0;
    line_.each_waiter([&](Party, const Waiter& w) { waiting += is_possible(w.count) ? w.count : 0; });
    waiting_.store(waiting);
  }
  serve();
}

void PermitPool::admit(bool outliving_fence) {
  if (admits_outliving_.load() == outliving_fence) return;
  admits_outliving_.store(outliving_fence);
  serve();
}

tokens::Demand PermitPool::demand() const {
  const std::lock_guard lock(mutex_);
  tokens::Demand demand;
  for (const auto& life : lives_) demand.busy += static_cast<Count>(std::max<std::int64_t>(life->in_use.load(), 0));
  const auto ours = static_cast<Count>(still_ours());
  const Count waiting = waiting_.load();
  demand.wants = ours + waiting;
  if (waiting > 0) demand.wants = std::max(demand.wants, expected_.load());
  if (const auto next = line_.next_served(limit_.load(), admits_outliving_.load())) {
    demand.least = next.at->count;
  } else if (demand.busy > 0 && together_in_use_.load(std::memory_order_relaxed) >= demand.busy) {
    // Every running caller took several at once, and the next one will, too. If the member reported 1 between two of
    // them, its share would change with each, and a member that waits for several would never collect them.
    demand.least = std::min(together_.load(std::memory_order_relaxed), std::max<Count>(limit_.load(), 1));
  }
  // Requests several permits at once, so that a program that only tries does not fail once for each permit.
  if (const Count tried = tried_.load(); tried > 0 && clock_() < tried_until_.load()) {
    demand.wants = std::max(demand.wants, ours + waiting + std::max(tried, ours));
    if (waiting == 0) demand.least = tried;
  }
  Count urgent = 0;
  line_.each_waiter([&](Party, const Waiter& w) { urgent += w.urgent && is_possible(w.count) ? w.count : 0; });
  demand.urgent = std::min(urgent, demand.wants);
  told_.store(demand.wants);
  return demand;
}

/// Permits in use, including those that were cancelled and will return.
std::int64_t PermitPool::still_ours() const {
  const Account* account = &life_.load()->account;
  std::int64_t sum = 0;
  for (const auto& other : lives_) sum += &other->account == account ? other->in_use.load() : 0;
  return std::max<std::int64_t>(sum, 0);
}

PermitPool::Count PermitPool::surrendered() const {
  return static_cast<Count>(life_.load()->account.surrendered.load());
}

PermitPool::Count PermitPool::in_use() const {
  return static_cast<Count>(std::max<std::int64_t>(life_.load()->in_use.load(), 0));
}

PermitPool::Count PermitPool::overstaying() const {
  const std::lock_guard lock(mutex_);
  const Life* now = life_.load();
  std::int64_t sum = 0;
  for (const auto& life : lives_) sum += life.get() != now ? life->in_use.load() : 0;
  return static_cast<Count>(std::max<std::int64_t>(sum, 0));
}

}  // namespace turnstile::detail
