#include "delivery/handler_breaker.hpp"

#include <algorithm>
#include <utility>

#include "config/duration.hpp"

namespace turnstile::detail {

using std::chrono::milliseconds;

namespace {

/// What the store says of the time that is left is rounded, and its clock may be corrected a little. If much more is left,
/// its clock was set back.
constexpr milliseconds kStoreSlack{1'000};

}  // namespace

bool HandlerBreaker::waits(Time now) const {
  const std::lock_guard lock(mutex_);
  if (!open_) return false;
  // A probe whose handler hangs does not keep the breaker half open forever.
  return now < until_ || (probe_since_ && now < *probe_since_ + policy_.open_for);
}

bool HandlerBreaker::begin_probe(Time now) {
  const std::lock_guard lock(mutex_);
  if (!open_ || now < until_) return false;
  probe_since_ = now;
  return true;
}

void HandlerBreaker::leave() {
  const std::lock_guard lock(mutex_);
  probe_since_.reset();
}

std::optional<HandlerBreaker::Time> HandlerBreaker::next_probe() const {
  const std::lock_guard lock(mutex_);
  if (!open_) return std::nullopt;
  return probe_since_ ? *probe_since_ + policy_.open_for : until_;
}

bool HandlerBreaker::is_open(Time now) const {
  const std::lock_guard lock(mutex_);
  return open_ && now < until_;
}

bool HandlerBreaker::is_closed() const {
  const std::lock_guard lock(mutex_);
  return !open_;
}

HandlerBreaker::Change HandlerBreaker::succeeded(Time now) {
  const std::lock_guard lock(mutex_);
  if (!open_) {
    ++slot(now).calls;
    return Change::none;
  }
  // Messages that began before it opened tell nothing new.
  if (now < until_ || ++good_ < kProbes) return Change::none;
  close();
  news_ = true;
  return Change::closed;
}

HandlerBreaker::Caught HandlerBreaker::failed(Time now, const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (open_) {
    if (now < until_) return {true, Change::none};
    why_ = "a probe failed: " + why;
    open(now);
    return {true, Change::none};
  }
  Slot& current = slot(now);
  ++current.calls;
  ++current.failures;
  std::int64_t calls = 0, failures = 0;
  for (const Slot& one : slots_) {
    if (one.number <= current.number - static_cast<std::int64_t>(kSlots)) continue;
    calls += one.calls;
    failures += one.failures;
  }
  if (calls < policy_.least || failures * 100 < policy_.percent * calls) return {};
  why_ = std::to_string(failures) + " of " + std::to_string(calls) + " calls failed within " + to_text(policy_.window) +
         ", the last one: " + why;
  open(now);
  return {true, Change::opened};
}

std::string HandlerBreaker::why() const {
  const std::lock_guard lock(mutex_);
  return why_;
}

std::optional<HandlerBreaker::News> HandlerBreaker::take_news(Time now) {
  const std::lock_guard lock(mutex_);
  if (!std::exchange(news_, false)) return std::nullopt;
  if (!open_) return News{std::nullopt, {}};
  is_stored_ = true;
  return News{std::max(std::chrono::ceil<milliseconds>(until_ - now), milliseconds(0)), why_};
}

void HandlerBreaker::again() {
  const std::lock_guard lock(mutex_);
  news_ = true;
}

HandlerBreaker::Change HandlerBreaker::hear(std::optional<milliseconds> left, Time now) {
  const std::lock_guard lock(mutex_);
  if (news_) return Change::none;  // newer than what the store has
  if (!left) {
    if (!open_ || !is_stored_) return Change::none;
    close();
    return Change::closed;
  }
  is_stored_ = true;
  const bool is_longer = *left > policy_.open_for + kStoreSlack;
  if (left->count() > 0 && !is_longer) {
    until_ = now + *left;
    good_ = 0;
  } else if (!open_) {
    until_ = now + (is_longer ? policy_.open_for : milliseconds(0));
  }
  return std::exchange(open_, true) ? Change::none : Change::opened;
}

std::optional<HandlerBreaker::Time> HandlerBreaker::open_until() const {
  const std::lock_guard lock(mutex_);
  return open_ ? std::optional(until_) : std::nullopt;
}

/// Of the current time; it was emptied if it is new.
HandlerBreaker::Slot& HandlerBreaker::slot(Time now) {
  const auto length = std::max<Time::duration>(policy_.window / kSlots, milliseconds(1));
  const std::int64_t number = now.time_since_epoch() / length;
  Slot& current = slots_[static_cast<std::size_t>(number) % kSlots];
  if (current.number != number) current = {number, 0, 0};
  return current;
}

void HandlerBreaker::open(Time now) {
  open_ = true;
  until_ = now + policy_.open_for;
  good_ = 0;
  news_ = true;
}

void HandlerBreaker::close() {
  open_ = is_stored_ = false;
  good_ = 0;
  slots_.fill({});
}

}  // namespace turnstile::detail
