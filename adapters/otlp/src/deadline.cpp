#include "deadline.hpp"

#include <fcntl.h>
#include <linux/tcp.h>  // not netinet/tcp.h, whose tcp_info lacks the bytes
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>

#include "quiet_thread.hpp"

namespace turnstile::otlp {

namespace {

// The request may open another socket after its first one was shut down.
constexpr std::chrono::milliseconds kAgain{20};
constexpr std::chrono::milliseconds kLookAtSize{50};

/// 0 if it is not known.
std::uint64_t received(int socket) {
  tcp_info info{};
  socklen_t size = sizeof info;
  constexpr auto needed = offsetof(tcp_info, tcpi_bytes_received) + sizeof info.tcpi_bytes_received;
  if (::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) != 0 || size < needed) return 0;
  return info.tcpi_bytes_received;
}

}  // namespace

Deadline::Deadline() : thread_(quiet_thread([this] { run(); })) {}

Deadline::~Deadline() {
  end();
  {
    const std::lock_guard lock(mutex_);
    quit_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void Deadline::begin(Time deadline) {
  const std::lock_guard lock(mutex_);
  active_ = true;
  cut_ = too_long_ = false;
  deadline_ = deadline;
  changed_.notify_all();
}

void Deadline::watch(int socket) {
  const std::lock_guard lock(mutex_);
  if (const int copy = ::fcntl(socket, F_DUPFD_CLOEXEC, 0); copy >= 0) sockets_.push_back(copy);
}

bool Deadline::end() {
  const std::lock_guard lock(mutex_);
  active_ = false;
  deadline_ = Time::max();
  for (const int socket : sockets_) ::close(socket);
  sockets_.clear();
  return cut_;
}

bool Deadline::was_too_long() const {
  const std::lock_guard lock(mutex_);
  return too_long_;
}

bool Deadline::has_received_too_much() const {
  return std::any_of(sockets_.begin(), sockets_.end(), [](int socket) { return received(socket) > kMostReceived; });
}

void Deadline::end_all_at(Time time) {
  const std::lock_guard lock(mutex_);
  last_ = time;
  changed_.notify_all();
}

Deadline::Time Deadline::current() const {
  const std::lock_guard lock(mutex_);
  return current_unlocked();
}

void Deadline::run() {
  std::unique_lock lock(mutex_);
  while (!quit_) {
    const Time now = std::chrono::steady_clock::now();
    if (!active_) {
      changed_.wait(lock);
    } else if (now < current_unlocked() && !(too_long_ = too_long_ || has_received_too_much())) {
      changed_.wait_until(lock, std::min(current_unlocked(), now + kLookAtSize));
    } else {
      cut_ = true;
      for (const int socket : sockets_) ::shutdown(socket, SHUT_RDWR);
      changed_.wait_for(lock, kAgain);
    }
  }
}

}  // namespace turnstile::otlp
