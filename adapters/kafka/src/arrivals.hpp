#pragma once
// The event of the partitions' queues, for threads that wait for records in place of the thread that polls.

#include <atomic>
#include <chrono>
#include <cstddef>

#include "turnstile/ports/broker.hpp"
#include "wake_up_event.hpp"

namespace turnstile::kafka {

class QueueArrivals final : public ports::Arrivals {
 public:
  QueueArrivals();

  bool wait(std::chrono::steady_clock::time_point until) override;
  void listen() noexcept override;
  void wake(std::size_t threads) noexcept override;

  /// The partitions' queues set it.
  [[nodiscard]] WakeUpEvent& event() noexcept { return event_; }
  /// Null while a thread waits for it here.
  [[nodiscard]] WakeUpEvent* unless_awaited() noexcept { return awaiting_ > 0 ? nullptr : &event_; }

 private:
  struct Descriptor {
    explicit Descriptor(int opened) : number(opened) {}
    ~Descriptor();
    Descriptor(const Descriptor&) = delete;
    Descriptor& operator=(const Descriptor&) = delete;
    const int number;
  };

  WakeUpEvent event_;
  Descriptor wakes_;  ///< an eventfd: how many threads are to be woken
  Descriptor epoll_;
  std::atomic<int> awaiting_{0};
};

}  // namespace turnstile::kafka
