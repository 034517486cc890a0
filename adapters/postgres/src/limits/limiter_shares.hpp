#pragma once
// How processes divide a limit. Each computes its own share from what it read; the rows alone see to it that the limit holds, so
// two that have read different things cost a moment, not a permit too many.

#include <chrono>
#include <cstdint>
#include <span>

namespace turnstile::postgres {

struct LimiterMember {
  bool me = false;
  std::int64_t held = 0;
  std::int64_t waiting = 0;              ///< permits that it could use besides
  std::chrono::microseconds held_for{};  ///< since its last grant
  std::chrono::microseconds waited_for{};
};

/// How many permits the member that is `me` may hold: max-min fair over held + waiting. What cannot be divided goes to those who
/// wait longest; who has had it for a turn hands it on. Without rivals who wait: all that is there.
std::int64_t fair_share(std::int64_t limit, std::span<const LimiterMember> members, std::chrono::microseconds turn);

}  // namespace turnstile::postgres
