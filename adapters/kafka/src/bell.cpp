#include "bell.hpp"

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

Bell::Bell() : fd_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  if (fd_ < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
}

Bell::~Bell() { ::close(fd_); }

void Bell::ring() noexcept {
  const int before = errno;
  // The write fails only if the counter is full, and then the bell rings anyway.
  [[maybe_unused]] const auto written = ::write(fd_, &kOne, sizeof kOne);
  errno = before;
}

bool Bell::wait(std::chrono::milliseconds most) noexcept {
  pollfd fd{.fd = fd_, .events = POLLIN, .revents = 0};
  const auto ms = std::clamp<std::int64_t>(most.count(), 0, std::numeric_limits<int>::max());
  if (::poll(&fd, 1, static_cast<int>(ms)) <= 0) return false;
  std::uint64_t rings = 0;
  [[maybe_unused]] const auto got = ::read(fd_, &rings, sizeof rings);
  return true;
}

void Bell::listen_to(rd_kafka_queue_t* queue) noexcept {
  rd_kafka_queue_io_event_enable(queue, fd_, &kOne, sizeof kOne);
}

void Bell::silence(rd_kafka_queue_t* queue) noexcept { rd_kafka_queue_io_event_enable(queue, -1, nullptr, 0); }

}  // namespace turnstile::kafka
