#include "support/periodic_thread.hpp"

namespace turnstile::detail {

void PeriodicThread::start(Time first) {
  const std::lock_guard lock(mutex_);
  start_unlocked(first);
}

void PeriodicThread::start_unlocked(Time first) {
  if (stopping_ || thread_.joinable()) return;
  next_ = first;
  thread_ = std::thread([this] { run(); });
}

void PeriodicThread::wake() {
  {
    const std::lock_guard lock(mutex_);
    woken_ = true;
    start_unlocked(kAtOnce);
  }
  changed_.notify_one();
}

void PeriodicThread::request_stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
}

void PeriodicThread::stop() {
  request_stop();
  if (thread_.joinable()) thread_.join();  // without the lock: nothing starts the thread any more
}

void PeriodicThread::run() {
  std::unique_lock lock(mutex_);
  const auto is_called = [this] { return woken_ || stopping_; };
  for (;;) {
    if (next_ == kWhenWoken) changed_.wait(lock, is_called);
    else changed_.wait_until(lock, next_, is_called);
    if (stopping_) return;
    woken_ = false;
    lock.unlock();
    const Time next = step_();
    lock.lock();
    next_ = next;
  }
}

}  // namespace turnstile::detail
