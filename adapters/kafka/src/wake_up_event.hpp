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
  bool wait(std::chrono::milliseconds most) noexcept;
  /// librdkafka sets it whenever an event enters the empty queue. Call stop_listening_to() before this is destroyed.
  void listen_to(rd_kafka_queue_t* queue) noexcept;
  static void stop_listening_to(rd_kafka_queue_t* queue) noexcept;

 private:
  int fd_;
};

}  // namespace turnstile::kafka
