#include "wire/server_clock.hpp"

#include <ctime>

namespace turnstile::postgres {

namespace {

std::int64_t boot_us() {
  timespec time{};
  clock_gettime(CLOCK_BOOTTIME, &time);
  return std::int64_t{time.tv_sec} * 1'000'000 + time.tv_nsec / 1'000;
}

/// "3 d", "25 h", "7 min"
std::string about(std::chrono::seconds time) {
  const auto s = time.count() < 0 ? -time.count() : time.count();
  if (s >= 3 * 86'400) return std::to_string(s / 86'400) + " d";
  if (s >= 3 * 3'600) return std::to_string(s / 3'600) + " h";
  return std::to_string(s / 60) + " min";
}

}  // namespace

std::optional<std::int64_t> ServerClock::expected_us() const {
  const std::lock_guard lock(mutex_);
  if (!shown_us_) return std::nullopt;
  return *shown_us_ + (boot_us() - at_us_);
}

void ServerClock::shows(std::int64_t us) {
  const std::lock_guard lock(mutex_);
  shown_us_ = us;
  at_us_ = boot_us();
}

std::int64_t ServerClock::wall_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::string held_by_step(std::chrono::seconds step, const std::string& until) {
  return "PostgreSQL's clock was set forward by " + about(step) +
         ", so ids that look old may be young: no process deletes ids before " + until +
         " UTC. If the clock is wrong, stop all programs and set it back; the deletion of ids then continues at once";
}

std::string held_by_difference(std::chrono::seconds ahead) {
  return "PostgreSQL's clock is " + about(ahead) + (ahead.count() < 0 ? " behind" : " ahead of") +
         " this machine's, so ids that look old may be young: this process deletes no ids until the clocks agree within 5 min. "
         "Correct the wrong clock";
}

}  // namespace turnstile::postgres
