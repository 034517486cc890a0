#include "permits/loss_watch.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace turnstile::detail {

namespace {

/// The clock goes on while the machine is suspended, a wait may not.
constexpr tokens::Micros kLongestSleep = 1'000'000, kShortestSleep = 1'000;

}  // namespace

void LossWatch::start() {
  thread_ = std::thread([self = shared_from_this()] { self->run(); });
}

void LossWatch::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (!thread_.joinable()) return;
  // The caller may run on this very thread: a callback can drop the last reference to the domain.
  if (thread_.get_id() == std::this_thread::get_id()) thread_.detach();
  else thread_.join();
}

void LossWatch::watch(const std::vector<MemberPool>& pools) {
  const std::lock_guard lock(mutex_);
  pools_.clear();
  for (const MemberPool& known : pools) pools_.push_back(known.pool);
}

void LossWatch::extend(Micros held_until) {
  const std::lock_guard lock(mutex_);
  if (held_until <= acted_on_) return;
  if (std::exchange(held_until_, std::max(held_until_, held_until)) == 0) changed_.notify_all();
}

void LossWatch::reserve_until(Micros time) {
  const std::lock_guard lock(mutex_);
  if (std::exchange(reserve_until_, time) == 0) changed_.notify_all();
}

LossWatch::Micros LossWatch::held_until() const {
  const std::lock_guard lock(mutex_);
  return held_until_;
}

LossWatch::Micros LossWatch::due() const {
  if (held_until_ == 0 || reserve_until_ == 0) return std::max(held_until_, reserve_until_);
  return std::min(held_until_, reserve_until_);
}

void LossWatch::look() {
  std::vector<std::shared_ptr<PermitPool>> pools;
  bool lost = false;
  Micros reserve = 0;
  {
    const std::lock_guard lock(mutex_);
    const Micros at = clock_();
    lost = held_until_ != 0 && at >= held_until_;
    if (lost) acted_on_ = std::exchange(held_until_, 0);
    if (reserve_until_ != 0 && at >= reserve_until_) reserve = std::exchange(reserve_until_, 0);
    if (!lost && reserve == 0) return;
    pools = pools_;
  }
  for (const auto& pool : pools) {
    if (lost) pool->cancel();
    if (reserve != 0) pool->reserve_until(reserve);
  }
}

void LossWatch::run() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    const Micros next = due();
    const Micros left = next - clock_();
    if (next == 0) {
      changed_.wait(lock);
    } else if (left > 0) {
      changed_.wait_for(lock, std::chrono::microseconds(std::clamp(left, kShortestSleep, kLongestSleep)));
    } else {
      lock.unlock();
      look();
      lock.lock();
    }
  }
}

}  // namespace turnstile::detail
