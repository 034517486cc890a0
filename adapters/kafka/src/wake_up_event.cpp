#include "wake_up_event.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <limits>
#include <system_error>

namespace turnstile::kafka {
namespace {
constexpr std::uint64_t kOne = 1;
}

WakeUpEvent::WakeUpEvent() : fd_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  if (fd_ < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
}

WakeUpEvent::~WakeUpEvent() { ::close(fd_); }

void WakeUpEvent::wake() noexcept {
  const int before = errno;
  // The write fails only if the counter is full, and then the event is set anyway.
  [[maybe_unused]] const auto written = ::write(fd_, &kOne, sizeof kOne);
  errno = before;
}

bool WakeUpEvent::wait(std::chrono::milliseconds most) noexcept {
  pollfd fd{.fd = fd_, .events = POLLIN, .revents = 0};
  const auto ms = std::clamp<std::int64_t>(most.count(), 0, std::numeric_limits<int>::max());
  if (::poll(&fd, 1, static_cast<int>(ms)) <= 0) return false;
  std::uint64_t wakes = 0;
  [[maybe_unused]] const auto got = ::read(fd_, &wakes, sizeof wakes);
  return true;
}

void WakeUpEvent::listen_to(rd_kafka_queue_t* queue) noexcept {
  rd_kafka_queue_io_event_enable(queue, fd_, &kOne, sizeof kOne);
}

void WakeUpEvent::stop_listening_to(rd_kafka_queue_t* queue) noexcept {
  rd_kafka_queue_io_event_enable(queue, -1, nullptr, 0);
}

}  // namespace turnstile::kafka
