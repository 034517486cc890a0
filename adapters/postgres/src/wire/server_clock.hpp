#pragma once
// Whether the server's clock agrees with this machine's. It decides the age of ids, so a server clock that was set
// forward makes young ids look old.

#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

namespace turnstile::postgres {

/// The last time of the server's clock. A clock that cannot be set, and that runs while the machine is suspended,
/// carries it on. Thread-safe.
class ServerClock {
 public:
  /// Microseconds since 1970. Absent before shows().
  [[nodiscard]] std::optional<std::int64_t> expected_us() const;
  void shows(std::int64_t us);
  /// This machine's own clock.
  static std::int64_t wall_us();

 private:
  mutable std::mutex mutex_;
  std::optional<std::int64_t> shown_us_;
  std::int64_t at_us_ = 0;
};

/// Why nothing is deleted, and what to do, for people. `until` as in "2026-11-24 00:40" (UTC).
std::string held_by_step(std::chrono::seconds step, const std::string& until);
/// The same for a server clock that is ahead of this machine's; `ahead` can be negative.
std::string held_by_difference(std::chrono::seconds ahead);

}  // namespace turnstile::postgres
