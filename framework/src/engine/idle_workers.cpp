#include "engine/idle_workers.hpp"

#include <algorithm>
#include <utility>

namespace turnstile::detail {

namespace {

/// A broker's answer that has records of one partition often tells the end of others, which wakes a worker first. The
/// records follow within some microseconds, less than a thread takes to sleep and to wake up.
constexpr std::chrono::microseconds kSoon{50};

}  // namespace

void IdleWorkers::receive(std::shared_ptr<ports::Arrivals> arrivals, std::function<bool()> feed) {
  arrivals_ = std::move(arrivals);
  feed_ = std::move(feed);
}

void IdleWorkers::wake_one() noexcept {
  ++changes_;
  wake(std::min<std::size_t>(count_, 1));
}

void IdleWorkers::wake_all() noexcept {
  ++changes_;
  wake(count_);
}

void IdleWorkers::wake(std::size_t how_many) noexcept {
  if (how_many == 0) return;
  if (arrivals_) arrivals_->wake(how_many);
  else if (how_many == 1) work_.notify_one();
  else work_.notify_all();
}

void IdleWorkers::wake_for_records() noexcept {
  if (!std::exchange(one_expects_records_, false)) return wake_one();
  ++changes_;
}

/// Whether records come before `soon`. It does not sleep.
bool IdleWorkers::come_again(SteadyTime soon) const {
  while (std::chrono::steady_clock::now() < soon) {
    if (arrivals_->look()) return true;
  }
  return false;
}

void IdleWorkers::wait(std::unique_lock<std::mutex>& lock, SteadyTime until) {
  ++count_;
  if (!arrivals_) {
    if (until == SteadyTime::max()) work_.wait(lock);
    else work_.wait_until(lock, until);
    --count_;
    return;
  }
  polling_thread_ = false;
  lock.unlock();
  const bool have_come = arrivals_->wait(until);
  lock.lock();
  --count_;
  if (!have_come) return;
  one_expects_records_ = true;
  lock.unlock();
  const SteadyTime soon = std::chrono::steady_clock::now() + kSoon;
  while (!feed_() && come_again(soon)) {
  }
  arrivals_->listen();
  lock.lock();
  one_expects_records_ = false;
}

bool IdleWorkers::leave(bool more) noexcept {
  if (more) wake(std::min<std::size_t>(count_, 1));  // each woken worker wakes the next
  return !arrivals_ || count_ > 0 || std::exchange(polling_thread_, true);
}

}  // namespace turnstile::detail
