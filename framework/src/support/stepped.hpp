#pragma once
// Atomics and a lock whose accesses a test can interleave in every order
// (tests/unit/permits/permit_pool_model_test.cpp). In builds without TURNSTILE_FAILPOINTS they are std::atomic and
// std::mutex.

#include <atomic>
#include <mutex>

namespace turnstile::stepped {

#if defined(TURNSTILE_FAILPOINTS) && TURNSTILE_FAILPOINTS

/// Decides which thread continues. A test sets it for its own threads; all other threads run freely.
class Stepper {
 public:
  /// Called before each access. Returns when this thread may make it.
  virtual void step() = 0;
  /// The lock that this thread needs is taken. Returns when the thread may try again.
  virtual void blocked() = 0;
  /// This thread has released a lock.
  virtual void unlocked() = 0;

 protected:
  ~Stepper() = default;
};
inline thread_local Stepper* stepper = nullptr;
inline void step() {
  if (stepper != nullptr) stepper->step();
}

/// Every access is sequentially consistent, which is also the default of std::atomic.
template <class T>
class Atomic {
 public:
  Atomic() : value_(T{}) {}
  Atomic(T value) : value_(value) {}  // NOLINT(google-explicit-constructor): as std::atomic
  Atomic(const Atomic&) = delete;
  Atomic& operator=(const Atomic&) = delete;
  T load(std::memory_order order = std::memory_order_seq_cst) const { return step(), value_.load(order); }
  void store(T value, std::memory_order order = std::memory_order_seq_cst) { step(), value_.store(value, order); }
  T exchange(T value) { return step(), value_.exchange(value); }
  T fetch_add(T more, std::memory_order order = std::memory_order_seq_cst) {
    return step(), value_.fetch_add(more, order);
  }
  T fetch_sub(T less) { return step(), value_.fetch_sub(less); }
  bool compare_exchange_weak(T& expected, T desired) {
    step();
    return value_.compare_exchange_strong(expected, desired);  // strong, so that it does not fail without a reason
  }

 private:
  std::atomic<T> value_;
};

class Mutex {
 public:
  void lock() {
    step();
    if (stepper == nullptr) return mutex_.lock();
    while (!mutex_.try_lock()) stepper->blocked();
  }
  void unlock() {
    mutex_.unlock();
    if (stepper != nullptr) stepper->unlocked();
  }

 private:
  std::mutex mutex_;
};

#else

template <class T>
using Atomic = std::atomic<T>;
using Mutex = std::mutex;

#endif

}  // namespace turnstile::stepped
