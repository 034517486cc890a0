#include "wake_up_event.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <ctime>
#include <system_error>

namespace turnstile::kafka {
namespace {
constexpr std::uint64_t kOne = 1;
/// So that the time fits into a timespec. Who waits longer waits again.
constexpr std::chrono::nanoseconds kLongest = std::chrono::hours(1);
}  // namespace

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

bool WakeUpEvent::wait_for_either(WakeUpEvent& one, WakeUpEvent* other, std::chrono::nanoseconds most) noexcept {
  // ppoll() leaves out a negative descriptor.
  std::array<pollfd, 2> fds{pollfd{.fd = one.fd_, .events = POLLIN, .revents = 0},
                            pollfd{.fd = other == nullptr ? -1 : other->fd_, .events = POLLIN, .revents = 0}};
  const auto time = std::clamp(most, std::chrono::nanoseconds{0}, kLongest);
  const auto seconds = std::chrono::floor<std::chrono::seconds>(time);
  const timespec timeout{.tv_sec = seconds.count(), .tv_nsec = (time - seconds).count()};
  if (::ppoll(fds.data(), fds.size(), &timeout, nullptr) <= 0) return false;
  if (fds[0].revents != 0) one.clear();
  if (fds[1].revents != 0) other->clear();
  return true;
}

void WakeUpEvent::clear() noexcept {
  std::uint64_t wakes = 0;
  [[maybe_unused]] const auto got = ::read(fd_, &wakes, sizeof wakes);
}

void WakeUpEvent::listen_to(rd_kafka_queue_t* queue) noexcept {
  rd_kafka_queue_io_event_enable(queue, fd_, &kOne, sizeof kOne);
}

void WakeUpEvent::stop_listening_to(rd_kafka_queue_t* queue) noexcept {
  rd_kafka_queue_io_event_enable(queue, -1, nullptr, 0);
}

}  // namespace turnstile::kafka
