#include "deadline.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "quiet_thread.hpp"

namespace turnstile::otlp {

namespace {

// The request may open another socket after its first one was shut down.
constexpr std::chrono::milliseconds kAgain{20};

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
  cut_ = false;
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
    } else if (now < current_unlocked()) {
      changed_.wait_until(lock, current_unlocked());
    } else {
      cut_ = true;
      for (const int socket : sockets_) ::shutdown(socket, SHUT_RDWR);
      changed_.wait_for(lock, kAgain);
    }
  }
}

}  // namespace turnstile::otlp
