#include "runtime/permit_gate.hpp"

#include <algorithm>
#include <limits>

namespace turnstile {

namespace {

// A token names the life in which it was taken; 0: of the reserve.
constexpr int kSerialBits = 40;
constexpr std::uint64_t kSerialMask = (std::uint64_t{1} << kSerialBits) - 1;
/// Free permits of a life that is over: whatever comes back, there are none.
constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::min() / 2;

}  // namespace

PermitGate::PermitGate(std::function<Micros()> clock, std::function<void()> ring)
    : clock_(std::move(clock)), ring_(std::move(ring)) {
  lives_.push_back(std::make_unique<Life>());
  life_ = lives_.back().get();
}

// --- threads -----------------------------------------------------------------------------------------------------------

PermitGate::Taken PermitGate::try_take(Count count) {
  if (waiting_.load() > 0) return {};
  return take(count);
}

PermitGate::Taken PermitGate::try_take_as_woken() { return take(1); }

PermitGate::Taken PermitGate::take(Count count) {
  const auto wanted = static_cast<std::int64_t>(count);
  if (!is_open()) return take_of_reserve(wanted);
  Life& life = *life_.load(std::memory_order_acquire);
  for (std::int64_t free = life.free.load();;) {
    if (free < wanted) return {};
    if (life.free.compare_exchange_weak(free, free - wanted)) break;
  }
  const auto now = static_cast<Count>(life.in_use.fetch_add(wanted) + wanted);
  for (Count seen = most_.load(std::memory_order_relaxed); seen < now && !most_.compare_exchange_weak(seen, now);) {
  }
  const std::uint64_t serial = last_serial_.fetch_add(1, std::memory_order_relaxed) + 1;
  return {.token = life.number << kSerialBits | (serial & kSerialMask), .lost = life.lost.get_token()};
}

PermitGate::Taken PermitGate::take_of_reserve(std::int64_t count) {
  for (std::int64_t used = reserved_in_use_.load();;) {
    if (used + count > reserve_.load()) return {};
    if (reserved_in_use_.compare_exchange_weak(used, used + count)) break;
  }
  taken_of_reserve_.fetch_add(1, std::memory_order_relaxed);
  return {.token = (last_serial_.fetch_add(1, std::memory_order_relaxed) + 1) & kSerialMask, .lost = {}};
}

bool PermitGate::has_one() const {
  if (is_open()) return life_.load()->free.load() > 0;
  return reserved_in_use_.load() < reserve_.load();
}

void PermitGate::give_back(std::uint64_t token, Count count) {
  const auto number = token >> kSerialBits;
  const auto back = static_cast<std::int64_t>(count);
  if (number == 0) {
    reserved_in_use_.fetch_sub(back);
    if (waiting_.load() > 0) serve();
    return;
  }
  Life* life = life_.load(std::memory_order_acquire);
  if (life->number != number) {
    const std::unique_lock lock(mutex_);
    life = life_.load();
    const auto found = std::find_if(lives_.begin(), lives_.end(), [&](const auto& l) { return l->number == number; });
    if (found == lives_.end()) return;
    (*found)->in_use.fetch_sub(back);
    if ((*found)->account != life->account) life = nullptr;
  } else {
    life->in_use.fetch_sub(back);  // first, so that it never counts what is free again
  }
  if (life != nullptr) credit(*life, back);
  else ring_();
}

bool PermitGate::holds(std::uint64_t token) const {
  const auto number = token >> kSerialBits;
  if (number == 0) return true;  // of no life: no lease ends it
  return life_.load(std::memory_order_acquire)->number == number &&
         clock_() < held_until_.load(std::memory_order_acquire);
}

void PermitGate::credit(Life& life, std::int64_t back) {
  const std::int64_t surrendered = settle_debt(life, back);
  if (surrendered < back) life.free.fetch_add(back - surrendered);
  if (surrendered > 0) ring_();
  if (surrendered < back && waiting_.load() > 0) serve();
}

/// How many of `count` permits, that the caller has, are owed and now surrendered.
std::int64_t PermitGate::settle_debt(Life& life, std::int64_t count) {
  for (std::int64_t done = life.surrendered.load();;) {
    const std::int64_t owed = std::min(count, life.surrender_to.load() - done);
    if (owed <= 0) return 0;
    if (life.surrendered.compare_exchange_weak(done, done + owed)) return owed;
  }
}

std::uint64_t PermitGate::take_later(Count count, bool urgent, std::function<void(Taken)> deliver) {
  return stand_in_line({.count = count, .urgent = urgent, .deliver = std::move(deliver)});
}

void PermitGate::when_free(std::function<void()> wake) { stand_in_line({.wake = std::move(wake)}); }

std::uint64_t PermitGate::stand_in_line(Waiter waiter) {
  std::uint64_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    number = waiter.number = ++last_waiter_;
    waiting_.fetch_add(waiter.count);
    if (waiter.urgent) urgent_waiting_ += waiter.count;
    const auto behind =
        waiter.urgent ? std::find_if(line_.begin(), line_.end(), [](const auto& w) { return !w.urgent; }) : line_.end();
    line_.insert(behind, std::move(waiter));
  }
  serve();
  if (waiting_.load() > 0 && in_use() + waiting_.load() > told_.load()) ring_();
  return number;
}

bool PermitGate::withdraw(std::uint64_t waiter) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(line_.begin(), line_.end(), [&](const auto& w) { return w.number == waiter; });
    if (found == line_.end()) return false;
    waiting_.fetch_sub(found->count);
    if (found->urgent) urgent_waiting_ -= found->count;
    line_.erase(found);
  }
  serve();  // it may have stood before others who need less
  return true;
}

/// Hands out what is free, to the first in line, one after another.
void PermitGate::serve() {
  std::unique_lock lock(mutex_);
  while (!line_.empty()) {
    const bool wakes = line_.front().wake != nullptr;
    Taken taken;
    if (wakes) {
      if (!has_one()) return;
    } else if (taken = take(line_.front().count); !taken) {
      return;
    }
    const Waiter first = std::move(line_.front());
    line_.pop_front();
    waiting_.fetch_sub(first.count);
    if (first.urgent) urgent_waiting_ -= first.count;
    lock.unlock();
    if (wakes) first.wake();
    else first.deliver(std::move(taken));
    lock.lock();
  }
}

void PermitGate::expect(Count at_once) {
  for (Count seen = expected_.load(); seen < at_once && !expected_.compare_exchange_weak(seen, at_once);) {
  }
}

// --- the member --------------------------------------------------------------------------------------------------------

void PermitGate::order(const tokens::Order& order) {
  const auto total = static_cast<std::int64_t>(order.total);
  Life& life = *life_.load();
  switch (order.kind) {
    case tokens::Order::Kind::open: {
      life.free.fetch_add(total - life.opened.exchange(total));
      serve();
      break;
    }
    case tokens::Order::Kind::surrender: {
      life.surrender_to.store(total);
      surrender_idle(life);
      break;
    }
    case tokens::Order::Kind::forfeit: {
      forfeit(total);
      break;
    }
  }
}

void PermitGate::surrender_idle(Life& life) {
  for (std::int64_t free = life.free.load();;) {
    const std::int64_t idle = std::min(free, life.surrender_to.load() - life.surrendered.load());
    if (idle <= 0) return;
    if (!life.free.compare_exchange_weak(free, free - idle)) continue;
    if (const std::int64_t kept = idle - settle_debt(life, idle); kept > 0) life.free.fetch_add(kept);
    return;
  }
}

void PermitGate::forfeit(std::int64_t total) {
  Life* old = nullptr;
  {
    const std::lock_guard lock(mutex_);
    old = life_.load();
    auto next = std::make_unique<Life>();
    next->number = old->number + 1;
    next->account = old->account + 1;
    next->opened = next->surrender_to = next->surrendered = total;
    life_.store(next.get(), std::memory_order_release);
    lives_.push_back(std::move(next));
    old->free.store(kNone);
  }
  old->lost.request_stop();
}

void PermitGate::cancel() {
  Life* old = nullptr;
  {
    const std::lock_guard lock(mutex_);
    old = life_.load();
    if (old->in_use.load() == 0) return;
    auto next = std::make_unique<Life>();
    next->number = old->number + 1;
    next->account = old->account;
    next->opened = old->opened.load();
    next->surrender_to = old->surrender_to.load();
    // Under the old life nobody takes any more, and what comes back late is credited to the new one by its number.
    const std::int64_t free = old->free.exchange(kNone);
    next->surrendered = old->surrendered.load();
    next->free = std::max<std::int64_t>(free, 0);
    life_.store(next.get(), std::memory_order_release);
    lives_.push_back(std::move(next));
  }
  old->lost.request_stop();
}

void PermitGate::open_until(Micros time) {
  const bool was_open = is_open();
  open_until_.store(time, std::memory_order_release);
  if (!was_open && waiting_.load() > 0) serve();
}

void PermitGate::reserve(Count count) { reserve_.store(static_cast<std::int64_t>(count)); }

tokens::Demand PermitGate::demand() const {
  const std::lock_guard lock(mutex_);
  tokens::Demand demand;
  for (const auto& life : lives_) demand.busy += static_cast<Count>(std::max<std::int64_t>(life->in_use.load(), 0));
  demand.wants = static_cast<Count>(still_ours()) + waiting_.load();
  if (!line_.empty()) {
    demand.wants = std::max(demand.wants, expected_.load());
    demand.least = line_.front().count;
    demand.urgent = std::min(urgent_waiting_, demand.wants);
  }
  told_.store(demand.wants);
  return demand;
}

/// In use, also under permits that were cancelled and will come back.
std::int64_t PermitGate::still_ours() const {
  const Life& life = *life_.load();
  std::int64_t sum = 0;
  for (const auto& other : lives_) sum += other->account == life.account ? other->in_use.load() : 0;
  return std::max<std::int64_t>(sum, 0);
}

PermitGate::Count PermitGate::surrendered() const { return static_cast<Count>(life_.load()->surrendered.load()); }

PermitGate::Count PermitGate::in_use() const {
  return static_cast<Count>(std::max<std::int64_t>(life_.load()->in_use.load(), 0));
}

PermitGate::Count PermitGate::overstaying() const {
  const std::lock_guard lock(mutex_);
  std::int64_t sum = 0;
  for (const auto& life : lives_) {
    if (life.get() != life_.load()) sum += life->in_use.load();
  }
  return static_cast<Count>(std::max<std::int64_t>(sum, 0));
}

}  // namespace turnstile
