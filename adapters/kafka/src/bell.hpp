#pragma once
// The event that poll() waits for. librdkafka rings it when a queue stops being empty, and wake() rings it.

#include <chrono>

#include "handles.hpp"

namespace turnstile::kafka {

/// An eventfd. Any thread and any signal handler may call ring(). The polling thread makes all other calls.
class Bell {
 public:
  Bell();
  ~Bell();
  Bell(const Bell&) = delete;
  Bell& operator=(const Bell&) = delete;

  void ring() noexcept;
  /// Waits until it has rung since the last call, or the time is over; afterwards it is silent. True if it had rung.
  bool wait(std::chrono::milliseconds most) noexcept;
  /// librdkafka rings it whenever an event enters the empty queue. Call silence() before the bell is destroyed.
  void listen_to(rd_kafka_queue_t* queue) noexcept;
  static void silence(rd_kafka_queue_t* queue) noexcept;

 private:
  int fd_;
};

}  // namespace turnstile::kafka
