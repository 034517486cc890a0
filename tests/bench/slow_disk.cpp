// A disk that is slow and stalls, for a PostgreSQL that is started with LD_PRELOAD: each fdatasync lasts 2 ms, and once a
// second the disk stands still for 30 ms. SLOW_DISK_SEED decides when within each second. All processes see the same
// stalls, because they follow from CLOCK_MONOTONIC.

#include <dlfcn.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <ctime>

namespace {

constexpr std::int64_t kSyncNs = 2'000'000, kStallNs = 30'000'000, kSecondNs = 1'000'000'000;

std::int64_t now_ns() {
  std::timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * kSecondNs + now.tv_nsec;
}

void sleep_until(std::int64_t at) {
  const std::timespec until{at / kSecondNs, at % kSecondNs};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) != 0) {
  }
}

/// When the disk stands still in this second: splitmix64 of the second and the seed.
std::int64_t stall_in(std::int64_t second) {
  static const std::uint64_t kSeed = [] {
    const char* const text = std::getenv("SLOW_DISK_SEED");
    return text == nullptr ? 0 : std::strtoull(text, nullptr, 10);
  }();
  std::uint64_t x = static_cast<std::uint64_t>(second) + kSeed + 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
  x ^= x >> 31U;
  return second * kSecondNs + static_cast<std::int64_t>(x % static_cast<std::uint64_t>(kSecondNs - kStallNs));
}

}  // namespace

extern "C" int fdatasync(int file) {
  static const auto kReal = reinterpret_cast<int (*)(int)>(dlsym(RTLD_NEXT, "fdatasync"));
  const std::int64_t began = now_ns();
  const int result = kReal(file);
  std::int64_t end = began + kSyncNs;
  const std::int64_t stall = stall_in(began / kSecondNs);
  if (began < stall + kStallNs && end > stall) end += stall + kStallNs - std::max(began, stall);
  sleep_until(end);
  return result;
}
