#include "engine/idle_workers.hpp"

#include <algorithm>
#include <utility>

namespace turnstile::detail {

void IdleWorkers::receive(std::shared_ptr<ports::Arrivals> arrivals, std::function<void()> feed) {
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
  feed_();
  arrivals_->listen();
  lock.lock();
  one_expects_records_ = false;
}

bool IdleWorkers::leave(bool more) noexcept {
  if (more) wake(std::min<std::size_t>(count_, 1));  // each woken worker wakes the next
  return !arrivals_ || count_ > 0 || std::exchange(polling_thread_, true);
}

}  // namespace turnstile::detail
