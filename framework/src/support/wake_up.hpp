#pragma once
// How callbacks wake an object that may end before they do.

#include <atomic>
#include <mutex>
#include <utility>

namespace turnstile::detail {

/// The callbacks share it with the object, and keep it when the object has ended. Thread-safe.
template <class Object>
class WakeUp {
 public:
  void attach(Object& object) {
    const std::lock_guard lock(mutex_);
    object_ = &object;
  }
  /// Waits for a call in progress. The object is not called afterwards.
  void detach() {
    const std::lock_guard lock(mutex_);
    object_ = nullptr;
  }
  /// Calls `wake` with the object, unless the object has ended. One call at a time.
  template <class Wake>
  void call(Wake&& wake) {
    const std::lock_guard lock(mutex_);
    if (object_ != nullptr) std::forward<Wake>(wake)(*object_);
  }
  /// As call(), but only the first one until heard(): the object is awake, or about to be. The others take no lock.
  template <class Wake>
  void call_once(Wake&& wake) {
    if (!called_.exchange(true)) call(std::forward<Wake>(wake));
  }
  /// The object looks now at what it was woken for.
  void heard() noexcept { called_.store(false); }

 private:
  std::mutex mutex_;
  Object* object_ = nullptr;
  std::atomic<bool> called_{false};
};

}  // namespace turnstile::detail
