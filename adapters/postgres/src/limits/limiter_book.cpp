#include "limits/limiter_book.hpp"

#include <algorithm>

namespace turnstile::postgres {

namespace {

constexpr Time kNever = Time::max();
/// The most permits in a statement, so that no statement takes long.
constexpr std::int64_t kMostAtOnce = 1'000;

}  // namespace

LimiterBook::LimiterBook(std::string name, std::int64_t configured, const LimiterPace& pace, std::function<void()> ring)
    : name_(std::move(name)), configured_(configured), pace_(pace), ring_(std::move(ring)) {
  dice_ = static_cast<std::uint32_t>(std::hash<std::string>{}(name_) ^ reinterpret_cast<std::uintptr_t>(this)) | 1U;
}

// --- threads ---------------------------------------------------------------------------------------------------------

LimiterBook::HeldMap::iterator LimiterBook::find_idle(Time now) {
  // A lowered limit is in effect at once for permits that are not in use.
  if (in_use_ == static_cast<std::int64_t>(held_.size()) || is_over()) return held_.end();
  return std::find_if(held_.begin(), held_.end(),
                      [now](const auto& held) { return !held.second.in_use && held.second.deadline > now; });
}

LimiterBook::HeldMap::iterator LimiterBook::find(const Slot& slot) {
  return std::find_if(held_.begin(), held_.end(), [&](const auto& held) { return held.second.slot == slot; });
}

LimiterBook::Taken LimiterBook::take(HeldMap::iterator idle) {
  Held& held = idle->second;
  held.in_use = true;
  held.fresh = false;
  held.lost = std::stop_source();
  most_in_use_ = std::max(most_in_use_, ++in_use_);
  return {idle->first, held.lost.get_token()};
}

LimiterBook::Taken LimiterBook::try_take() {
  const auto now = LeaseClock::now();
  {
    const std::lock_guard lock(mutex_);
    if (const auto idle = find_idle(now); idle != held_.end()) return take(idle);
    const bool asked = refused_at_ && now - *refused_at_ < pace_.poll;
    refused_at_ = now;
    if (asked || !line_.empty()) return {};
  }
  ring_();
  return {};
}

void LimiterBook::when_free(std::function<void()> wake) { stand_in_line({.wake = std::move(wake)}); }

std::uint64_t LimiterBook::take_later(std::function<void(Taken)> deliver) {
  return stand_in_line({.deliver = std::move(deliver)});
}

std::uint64_t LimiterBook::stand_in_line(Waiter waiter) {
  std::uint64_t number = 0;
  bool rings = false;
  {
    const std::lock_guard lock(mutex_);
    waiter.number = number = ++last_waiter_;
    line_.push_back(std::move(waiter));
    const auto now = LeaseClock::now();
    rings = find_idle(now) == held_.end() && now >= next_take_;
  }
  serve();
  if (rings) ring_();
  return number;
}

bool LimiterBook::withdraw(std::uint64_t request) {
  Waiter gone;  // destroyed without the lock: it may hold the last reference to its limiter
  const std::lock_guard lock(mutex_);
  const auto found =
      std::lower_bound(line_.begin(), line_.end(), request,
                       [](const Waiter& waiter, std::uint64_t number) { return waiter.number < number; });
  if (found == line_.end() || found->number != request) return false;
  gone = std::move(*found);
  line_.erase(found);
  return true;
}

/// Serves the waiting callers one after another, in the order of their requests, until no permit is idle. A caller that
/// is only woken may no longer need a permit, and must not keep it from those behind it.
void LimiterBook::serve() {
  std::unique_lock lock(mutex_);
  while (!line_.empty()) {
    const auto idle = find_idle(LeaseClock::now());
    if (idle == held_.end()) return;
    const Waiter waiter = std::move(line_.front());
    line_.pop_front();
    const Taken taken = waiter.deliver ? take(idle) : Taken{};
    lock.unlock();
    if (waiter.deliver) waiter.deliver(taken);
    else waiter.wake();
    lock.lock();
  }
}

/// Whether all processes together have more than the limit.
bool LimiterBook::is_over() const { return view_ && view_->free < 0; }

bool LimiterBook::surrenders() const {
  return is_over() || (view_ && view_->rivals && static_cast<std::int64_t>(held_.size()) > view_->share);
}

bool LimiterBook::holds(std::uint64_t token) const noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = held_.find(token);
  return found != held_.end() && LeaseClock::now() < found->second.deadline;
}

void LimiterBook::give_back(std::uint64_t token) noexcept {
  bool rings = false;
  {
    const std::lock_guard lock(mutex_);
    if (const auto late = overstaying_.find(token); late != overstaying_.end()) {
      // The statement compares the row: if it belongs to another process by now, nothing changes. If the database has
      // lost the grant and granted the row to this process again, it is in use here.
      rings = find(late->second) == held_.end();
      if (rings) returning_.push_back(late->second);
      overstaying_.erase(late);
    } else if (const auto found = held_.find(token); found != held_.end() && found->second.in_use) {
      --in_use_;
      found->second.in_use = false;
      found->second.lost = std::stop_source(std::nostopstate);
      found->second.idle_since = LeaseClock::now();
      if (surrenders()) {
        returning_.push_back(found->second.slot);
        held_.erase(found);
        note_returned();
        rings = true;
      }
    }
  }
  if (!rings) {
    serve();
    const std::lock_guard lock(mutex_);
    rings = view_ && view_->rivals && line_.empty() && in_use_ < static_cast<std::int64_t>(held_.size());
  }
  if (rings) ring_();
}

void LimiterBook::expect(std::int64_t at_once) {
  const std::lock_guard lock(mutex_);
  expected_ = std::max(expected_, at_once);
}

ports::LimiterState LimiterBook::state() const {
  const std::lock_guard lock(mutex_);
  const auto now = LeaseClock::now();
  ports::LimiterState state;
  state.limit = view_ ? view_->limit : configured_;
  state.in_use = std::count_if(held_.begin(), held_.end(),
                               [&](const auto& held) { return held.second.in_use && held.second.deadline > now; });
  state.most_in_use = most_in_use_;
  state.held = std::count_if(held_.begin(), held_.end(), [&](const auto& held) { return held.second.deadline > now; });
  state.share = view_ ? view_->share : 0;
  state.waiting = static_cast<std::int64_t>(line_.size());
  return state;
}

// --- the database ----------------------------------------------------------------------------------------------------

std::int64_t LimiterBook::wanted() const {
  const std::lock_guard lock(mutex_);
  return wanted(LeaseClock::now());
}

bool LimiterBook::is_turn_over() const {
  const std::lock_guard lock(mutex_);
  return turn_over_;
}

std::int64_t LimiterBook::wanted(Time now) const {
  const auto idle = static_cast<std::int64_t>(held_.size()) - in_use_;
  auto waiting = static_cast<std::int64_t>(line_.size());
  if (waiting > 0) waiting = std::max(waiting, expected_ - in_use_);
  else if (refused_at_ && now - *refused_at_ < pace_.linger()) waiting = 1;
  return std::max<std::int64_t>(waiting - idle, 0);
}

Time LimiterBook::idle_until(const Held& held) const {
  if (held.in_use) return kNever;
  if (view_ && view_->rivals) return held.fresh ? held.idle_since + pace_.poll : held.idle_since;
  return held.idle_since + pace_.linger();
}

Time LimiterBook::wait_due() const { return told_waiting_ > 0 ? told_at_ + pace_.wait_counts() / 2 : kNever; }

Time LimiterBook::due() const {
  const std::lock_guard lock(mutex_);
  if (!view_ || !returning_.empty()) return {};
  Time due = std::min(kNever, wait_due());
  const auto now = LeaseClock::now();
  if (!held_.empty() || !line_.empty() || told_waiting_ > 0) due = std::min(due, next_view_);
  if (wanted(now) > 0) due = std::min(due, next_take_);
  if (line_.empty()) {
    for (const auto& [token, held] : held_) due = std::min(due, idle_until(held));
  }
  return due;
}

std::optional<LimiterView> LimiterBook::known() const {
  const std::lock_guard lock(mutex_);
  return view_;
}

std::chrono::milliseconds LimiterBook::jittered(std::chrono::milliseconds time) {
  dice_ = dice_ * 1664525U + 1013904223U;  // random, so that processes that started together do not query together
  return std::max(std::chrono::milliseconds(1), time * (75 + (dice_ >> 16U) % 50) / 100);
}

/// A permit that is returned while others wait is theirs: this process's turn is over until it has read the view again.
void LimiterBook::note_returned() {
  ++view_->free;
  if (!view_->rivals) return;
  view_->share = std::min(view_->share, static_cast<std::int64_t>(held_.size()));
  turn_over_ = true;
}

void LimiterBook::return_idle(Time now, std::vector<Slot>& to) {
  for (auto at = held_.begin(); at != held_.end();) {
    const bool unwanted = line_.empty() && idle_until(at->second) <= now;
    if (at->second.in_use || !(unwanted || surrenders())) {
      ++at;
      continue;
    }
    to.push_back(at->second.slot);
    at = held_.erase(at);
    note_returned();
  }
}

/// A wait is recorded if the database could not grant what was wanted. It is changed if the number has changed by a
/// large factor.
void LimiterBook::plan_wait(Time now, std::int64_t wanted, LimiterErrand& errand) {
  if (wanted == 0 || (!short_ && told_waiting_ == 0)) {
    errand.wait_no_more = told_waiting_ > 0 && line_.empty() && now >= next_view_;
    return;
  }
  const bool other = wanted > 2 * told_waiting_ || 2 * wanted < told_waiting_;
  if (!other && !turn_over_ && now < wait_due()) return;
  errand.waiting = wanted;
  errand.wait_anew = turn_over_;
}

LimiterErrand LimiterBook::errand(Time now) {
  const std::lock_guard lock(mutex_);
  LimiterErrand errand;
  errand.give_back = std::move(returning_);
  returning_.clear();
  if (!view_) return errand;
  return_idle(now, errand.give_back);
  errand.settle = view_->unsettled;
  errand.sweep = view_->overdue;
  const std::int64_t want = wanted(now);
  plan_wait(now, want, errand);
  if (now < next_take_) return errand;
  // A recent view is trusted, because a request for permits that are not there would cost a commit.
  const std::int64_t there = now - viewed_at_ < 3 * pace_.poll ? room() : view_->limit;
  errand.take = std::clamp<std::int64_t>(std::min(want, there), 0, kMostAtOnce);
  return errand;
}

/// How many more permits this process may have, by the last view.
std::int64_t LimiterBook::room() const {
  return std::min(view_->free, view_->share - static_cast<std::int64_t>(held_.size()));
}

void LimiterBook::done(const LimiterErrand& errand, const std::vector<Slot>& granted, Time sent,
                       const LimiterView& view) {
  {
    const std::lock_guard lock(mutex_);
    const auto now = LeaseClock::now();
    const bool changed = !view_ || view_->version != view.version;
    view_ = view;
    viewed_at_ = now;
    for (const Slot& slot : granted) {
      Held held;
      held.slot = slot;
      held.deadline = pace_.deadline(sent);
      held.idle_since = now;
      held_.emplace(++last_token_, std::move(held));
    }
    if (errand.waiting > 0) {
      told_waiting_ = errand.waiting;
      told_at_ = sent;
      if (errand.wait_anew) turn_over_ = false;
    }
    if (errand.wait_no_more) told_waiting_ = 0;
    short_ = wanted(now) > 0;
    // A process whose turn it is queries more often, because its permit may be idle already.
    const bool ours = told_waiting_ > 0 && view.share > static_cast<std::int64_t>(held_.size());
    next_view_ = next_take_ = now + jittered(ours ? pace_.poll / 4 : pace_.poll);
    // A changed version is no lack of permits.
    const bool got_all = static_cast<std::int64_t>(granted.size()) == errand.take;
    if (!short_ || (room() > 0 && (got_all || changed))) next_take_ = now;
  }
  serve();
}

void LimiterBook::undone(const LimiterErrand&) {
  const std::lock_guard lock(mutex_);
  // Permits that should have been returned are returned when the worker reports what it holds.
  told_waiting_ = 0;
  next_view_ = next_take_ = LeaseClock::now() + jittered(pace_.poll);
}

std::vector<Slot> LimiterBook::held() const {
  const std::lock_guard lock(mutex_);
  const auto now = LeaseClock::now();
  std::vector<Slot> slots;
  for (const auto& [token, held] : held_) {
    if (held.deadline > now) slots.push_back(held.slot);
  }
  return slots;
}

std::vector<Slot> LimiterBook::overstaying() const {
  const std::lock_guard lock(mutex_);
  std::vector<Slot> slots;
  for (const auto& [token, slot] : overstaying_) slots.push_back(slot);
  // The watching thread has not noticed it yet.
  const auto now = LeaseClock::now();
  for (const auto& [token, held] : held_) {
    if (held.deadline <= now && held.in_use) slots.push_back(held.slot);
  }
  return slots;
}

/// Returns 1 if it was in use.
std::int64_t LimiterBook::lose(HeldMap::iterator held, std::vector<std::stop_source>& told) {
  const bool in_use = held->second.in_use;
  if (in_use) {
    --in_use_;
    overstaying_.emplace(held->first, held->second.slot);
    told.push_back(held->second.lost);
  }
  held_.erase(held);
  return in_use ? 1 : 0;
}

std::int64_t LimiterBook::renewed(const std::vector<Slot>& asked, const std::vector<Slot>& renewed, Time sent) {
  std::vector<std::stop_source> told;
  std::int64_t lost = 0;
  {
    const std::lock_guard lock(mutex_);
    const auto now = LeaseClock::now();
    for (const Slot& slot : asked) {
      const auto found = find(slot);
      if (found == held_.end()) continue;
      if (std::find(renewed.begin(), renewed.end(), slot) == renewed.end()) lost += lose(found, told);
      // A permit that expired before the answer came stays expired: its holder may have been told already.
      else if (found->second.deadline > now)
        found->second.deadline = std::max(found->second.deadline, pace_.deadline(sent));
    }
  }
  for (auto& source : told) source.request_stop();
  return lost;
}

// --- the clock -------------------------------------------------------------------------------------------------------

Time LimiterBook::next_deadline() const {
  const std::lock_guard lock(mutex_);
  Time next = kNever;
  for (const auto& [token, held] : held_) next = std::min(next, held.deadline);
  return next;
}

std::int64_t LimiterBook::expire(Time now) {
  std::vector<std::stop_source> told;
  std::int64_t lost = 0;
  {
    const std::lock_guard lock(mutex_);
    for (auto at = held_.begin(); at != held_.end();) {
      const auto held = at++;
      if (held->second.deadline <= now) lost += lose(held, told);
    }
  }
  for (auto& source : told) source.request_stop();
  return lost;
}

}  // namespace turnstile::postgres
