#pragma once
// How processes divide a limit. Each process computes its own share from its view. The rows alone enforce the limit: if
// two processes have different views, they lose a moment, and grant no permit too many.

#include <chrono>
#include <cstdint>
#include <span>

namespace turnstile::postgres {

struct LimiterMember {
  bool me = false;
  std::int64_t held = 0;
  std::int64_t waiting = 0;              ///< permits that it could use in addition
  std::chrono::microseconds held_for{};  ///< since its last grant
  std::chrono::microseconds waited_for{};
};

/// How many permits the member that is `me` may hold: max-min fair over held + waiting. A remainder that cannot be
/// divided goes to the members that have waited longest; after a turn a member passes it on. If no other member waits:
/// the whole limit.
std::int64_t fair_share(std::int64_t limit, std::span<const LimiterMember> members, std::chrono::microseconds turn);

}  // namespace turnstile::postgres
