#pragma once
// The event that poll() waits for. librdkafka sets it when a queue stops being empty, and wake() sets it.

#include <chrono>

#include "handles.hpp"

namespace turnstile::kafka {

/// An eventfd. Any thread and any signal handler may call wake(). The polling thread makes all other calls.
class WakeUpEvent {
 public:
  WakeUpEvent();
  ~WakeUpEvent();
  WakeUpEvent(const WakeUpEvent&) = delete;
  WakeUpEvent& operator=(const WakeUpEvent&) = delete;

  void wake() noexcept;
  /// Waits until the event has been set since the last call, or the time is over; afterwards it is not set. True if it
  /// was set.
  bool wait(std::chrono::nanoseconds most) noexcept { return wait_for_either(*this, nullptr, most); }
  /// The same for two events, of which the second may be null.
  static bool wait_for_either(WakeUpEvent& one, WakeUpEvent* other, std::chrono::nanoseconds most) noexcept;
  /// librdkafka sets it whenever an event enters the empty queue. Call stop_listening_to() before this is destroyed.
  void listen_to(rd_kafka_queue_t* queue) noexcept;
  static void stop_listening_to(rd_kafka_queue_t* queue) noexcept;

  /// Afterwards it is not set.
  void clear() noexcept;
  /// Readable while it is set.
  [[nodiscard]] int descriptor() const noexcept { return fd_; }

 private:
  int fd_;
};

}  // namespace turnstile::kafka
