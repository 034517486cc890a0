#pragma once
// What a waiting poll() listens to: librdkafka rings it when a queue stops being empty, and wake() does.

#include <chrono>

#include "handles.hpp"

namespace turnstile::kafka {

/// An eventfd. ring() from any thread and from signal handlers; the rest on the polling thread.
class Bell {
 public:
  Bell();
  ~Bell();
  Bell(const Bell&) = delete;
  Bell& operator=(const Bell&) = delete;

  void ring() noexcept;
  /// Waits until it has rung since the last call, or the time is over; it is silent then. True when it had rung.
  bool wait(std::chrono::milliseconds most) noexcept;
  /// librdkafka rings it whenever something comes into the empty queue. `silence` before the bell goes away.
  void listen_to(rd_kafka_queue_t* queue) noexcept;
  static void silence(rd_kafka_queue_t* queue) noexcept;

 private:
  int fd_;
};

}  // namespace turnstile::kafka
