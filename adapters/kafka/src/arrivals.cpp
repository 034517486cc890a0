#include "arrivals.hpp"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <system_error>

namespace turnstile::kafka {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr std::uint64_t kRecords = 0, kWakes = 1;
/// The longest single wait. It may end too early.
constexpr milliseconds kLongest = std::chrono::hours(1);

int checked(int result, const char* call) {
  if (result < 0) throw std::system_error(errno, std::generic_category(), call);
  return result;
}

int listen_to(int epoll, int fd, std::uint64_t which, int how = EPOLL_CTL_ADD) noexcept {
  epoll_event event{.events = EPOLLIN | (which == kRecords ? EPOLLONESHOT : 0U), .data = {.u64 = which}};
  return ::epoll_ctl(epoll, how, fd, &event);
}

int until_ms(steady_clock::time_point until) {
  const auto now = steady_clock::now();
  if (until <= now) return 0;
  if (until - now >= kLongest) return static_cast<int>(kLongest.count());
  return static_cast<int>(std::chrono::ceil<milliseconds>(until - now).count());
}

}  // namespace

// One epoll instance for all threads: an event wakes the thread that began to wait last. Its database connection was
// used last, too. Records wake one thread, and no other one until listen() (EPOLLONESHOT).
QueueArrivals::QueueArrivals()
    : wakes_(checked(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC | EFD_SEMAPHORE), "eventfd")),
      epoll_(checked(::epoll_create1(EPOLL_CLOEXEC), "epoll_create1")) {
  checked(listen_to(epoll_.number, event_.descriptor(), kRecords), "epoll_ctl");
  checked(listen_to(epoll_.number, wakes_.number, kWakes), "epoll_ctl");
}

QueueArrivals::Descriptor::~Descriptor() { ::close(number); }

bool QueueArrivals::wait(steady_clock::time_point until) {
  epoll_event event{};
  ++awaiting_;
  const int count = ::epoll_wait(epoll_.number, &event, 1, until_ms(until));
  --awaiting_;
  if (count <= 0) return false;
  if (event.data.u64 == kRecords) {
    event_.clear();
    return true;
  }
  std::uint64_t one = 0;
  [[maybe_unused]] const auto got = ::read(wakes_.number, &one, sizeof one);
  return false;
}

// The descriptor was added, so this cannot fail.
void QueueArrivals::listen() noexcept { listen_to(epoll_.number, event_.descriptor(), kRecords, EPOLL_CTL_MOD); }

void QueueArrivals::wake(std::size_t threads) noexcept {
  const std::uint64_t count = threads;
  [[maybe_unused]] const auto written = ::write(wakes_.number, &count, sizeof count);
}

}  // namespace turnstile::kafka
