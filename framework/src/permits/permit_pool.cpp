#include "permits/permit_pool.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "tokens/planted.hpp"

namespace turnstile {

namespace {

// A token contains the number of the life in which it was taken; 0: a token of the reserve.
constexpr int kSerialBits = 40;
constexpr std::uint64_t kSerialMask = (std::uint64_t{1} << kSerialBits) - 1;
/// The free permits of an account that is over: a number so low that no release makes it positive.
constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::min() / 2;
/// The largest lead, in permits, of a party that returns after it did not wait for a while.
constexpr std::uint64_t kMostAhead = 4;

}  // namespace

PermitPool::PermitPool(std::function<Micros()> clock, std::function<void()> ring)
    : clock_(std::move(clock)), ring_(std::move(ring)) {
  accounts_.push_back(std::make_unique<Account>());
  lives_.push_back(std::make_unique<Life>(1, *accounts_.back()));
  life_.store(lives_.back().get());
  queues_[0];
}

// --- threads ---------------------------------------------------------------------------------------------------------

PermitPool::Party PermitPool::add_party(bool outlives_fence) {
  const std::lock_guard lock(mutex_);
  const Party party = (last_party_ / 2 + 1) * 2 + (outlives_fence ? 1 : 0);
  last_party_ = party;
  queues_[party].served = served_;
  return party;
}

void PermitPool::remove_party(Party party) {
  decltype(queues_)::node_type gone;  // the waiting callbacks are destroyed without the lock
  {
    const std::lock_guard lock(mutex_);
    each_waiter([&](Party of, Queue&, Line&, Line::iterator at) {
      if (of == party && is_possible(at->count)) waiting_.fetch_sub(at->count);
    });
    gone = queues_.extract(party);
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
  if (outlives_fence(party) && !admits_outliving_.load()) return {};
  for (std::int64_t free = life.account.free.load();;) {
    if (free < wanted) return {};
    if (life.account.free.compare_exchange_weak(free, free - wanted)) break;
  }
  const auto now = static_cast<Count>(life.in_use.fetch_add(wanted) + wanted);
  for (Count seen = most_.load(std::memory_order_relaxed); seen < now && !most_.compare_exchange_weak(seen, now);) {
  }
  if (tried_until_.load(std::memory_order_relaxed) != 0) tried_until_.store(0);
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
  life->in_use.fetch_sub(back);  // first, so that it never counts permits that are free again
  const Life& now = *life_.load();
  if (&life->account != &now.account) return ring_();
  if (TURNSTILE_PLANTED(late_permit_not_credited) && life != &now) return ring_();
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
    const std::int64_t surrendered = settle_debt(account, back);
    paid = paid || surrendered > 0;
    back -= surrendered;
    if (back == 0) break;
    account.free.fetch_add(back);
    freed = true;
    // A surrender that was ordered after settle_debt() has not seen them.
    back = withdraw_idle(account);
  }
  if (paid) ring_();
  if (freed && waiting_.load() > 0) serve();
}

/// How many of the caller's `count` permits are owed. They are now surrendered.
std::int64_t PermitPool::settle_debt(Account& account, std::int64_t count) {
  for (std::int64_t done = account.surrendered.load();;) {
    const std::int64_t owed = std::min(count, account.surrender_to.load() - done);
    if (owed <= 0) return 0;
    if (account.surrendered.compare_exchange_weak(done, done + owed)) return owed;
  }
}

/// Takes the free permits that are owed. The caller has them now.
std::int64_t PermitPool::withdraw_idle(Account& account) {
  const std::int64_t owed = account.surrender_to.load() - account.surrendered.load();
  if (owed <= 0) return 0;
  for (std::int64_t free = account.free.load();;) {
    const std::int64_t idle = std::min(free, owed);
    if (idle <= 0) return 0;
    if (account.free.compare_exchange_weak(free, free - idle)) return idle;
  }
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
    number = waiter.number = ++last_waiter_;
    if (is_possible(waiter.count)) waiting_.fetch_add(waiter.count);
    Queue& queue = queues_[party];
    Line& line = waiter.urgent ? queue.urgent : queue.normal;
    line.push_back(std::move(waiter));
  }
  serve();
  if (const Count waiting = waiting_.load(); waiting > 0 && in_use() + waiting > told_.load()) ring_();
  return number;
}

bool PermitPool::withdraw(std::uint64_t waiter) {
  Waiter gone;  // destroyed without the lock: it may hold the last reference to its party
  {
    const std::lock_guard lock(mutex_);
    Place found;
    each_waiter([&](Party party, Queue& queue, Line& line, Line::iterator at) {
      if (at->number == waiter) found = {.party = party, .queue = &queue, .line = &line, .at = at};
    });
    if (!found) return false;
    gone = leave_line(found);
  }
  serve();  // it may have blocked callers that need fewer permits
  ring_();  // the member must not request permits that no caller wants
  return true;
}

template <class Each>
void PermitPool::each_waiter(Each each) const {
  for (auto& [party, queue] : queues_) {
    for (Line* line : {&queue.urgent, &queue.normal}) {
      for (auto at = line->begin(); at != line->end(); ++at) each(party, queue, *line, at);
    }
  }
}

PermitPool::Waiter PermitPool::leave_line(const Place& place) {
  Waiter waiter = std::move(*place.at);
  place.line->erase(place.at);
  if (is_possible(waiter.count)) waiting_.fetch_sub(waiter.count);
  return waiter;
}

std::uint64_t PermitPool::turn_of(const Queue& queue) const {
  return std::max(queue.served, served_ - std::min(served_, kMostAhead));
}

/// The oldest urgent request; otherwise the oldest of the party that has had the fewest permits. Requests for more than
/// `most` are skipped.
PermitPool::Place PermitPool::next_served(Count most) const {
  const bool admits = admits_outliving_.load();
  Place best;
  for (const bool urgent : {true, false}) {
    for (auto& [party, queue] : queues_) {
      if (outlives_fence(party) && !admits) continue;
      Line& line = urgent ? queue.urgent : queue.normal;
      const auto at =
          std::find_if(line.begin(), line.end(), [&](const Waiter& w) { return w.count <= std::max<Count>(most, 1); });
      if (at == line.end()) continue;
      if (best && !urgent && turn_of(*best.queue) < turn_of(queue)) continue;
      if (best && (urgent || turn_of(*best.queue) == turn_of(queue)) && best.at->number < at->number) continue;
      best = {.party = party, .queue = &queue, .line = &line, .at = at};
    }
    if (best) break;
  }
  return best;
}

/// Gives free permits to the waiting callers, one after another, in the order of next_served().
void PermitPool::serve() {
  std::unique_lock lock(mutex_);
  for (;;) {
    const Place next = next_served(is_open() ? limit_.load() : static_cast<Count>(reserve_.load()));
    if (!next) return;
    const bool wakes = next.at->wake != nullptr;
    Taken taken;
    if (wakes) {
      if (!has_one()) return;
    } else if (taken = take(next.at->count, next.party); !taken) {
      return;
    }
    if (!next.at->urgent) {
      served_ = std::max(served_, turn_of(*next.queue));
      next.queue->served = turn_of(*next.queue) + next.at->count;
    }
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
      credit(account, withdraw_idle(account));
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
    each_waiter([&](Party, Queue&, Line&, Line::iterator at) { waiting += is_possible(at->count) ? at->count : 0; });
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
  if (const Place next = next_served(limit_.load())) demand.least = next.at->count;
  // Requests several permits at once, so that a program that only tries does not fail once for each permit.
  if (const Count tried = tried_.load(); tried > 0 && clock_() < tried_until_.load()) {
    demand.wants = std::max(demand.wants, ours + waiting + std::max(tried, ours));
    if (waiting == 0) demand.least = tried;
  }
  Count urgent = 0;
  each_waiter(
      [&](Party, Queue&, Line&, Line::iterator at) { urgent += at->urgent && is_possible(at->count) ? at->count : 0; });
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

}  // namespace turnstile
