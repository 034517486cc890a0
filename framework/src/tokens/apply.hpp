#pragma once
// Applies events to the state of a domain. Pure and total: apply() accepts any event, reads no clock, and uses only
// integers and ordered containers. Equal logs therefore give equal states on every machine.

#include <cstdint>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include "tokens/state.hpp"

namespace turnstile::tokens {

struct Effects {
  enum class Outcome : std::uint8_t {
    applied,
    unknown,      ///< no event, or of a version that is not in effect yet
    duplicate,    ///< seq not above the last
    old_epoch,    ///< the member has a newer epoch
    stranger,     ///< not a member, or not any more
    revived,      ///< Joined of a life that has ended
    stale,        ///< its premise is no longer true: Expire, PartitionsClaimed, Fenced, LimitSet, VersionSet
    not_allowed,  ///< too many, too long, out of range
    elsewhere,    ///< it belongs to another part of the log, or to none: the log is divided already
  };
  Outcome outcome = Outcome::applied;
  std::optional<MemberId> ended;    ///< expired, or left
  std::vector<MemberId> drained;    ///< members that began to drain
  std::vector<MemberId> reclaimed;  ///< members whose permits of fenced limiters returned
};

std::string_view to_text(Effects::Outcome outcome);

/// Applies the record at `position`. Positions must ascend: a record that is not above state.last changes nothing.
/// Throws only std::bad_alloc.
Effects apply(State& state, Position position, const Event& event);

/// Whether a Keep of the member with this line would change nothing: the state shows already what the line reports. The
/// place in the line of a member that wants nothing does not count: it gets a new one with its next wish.
[[nodiscard]] bool shows(const State& state, MemberId member, const Line& line);

/// A member that rests has this many times its lease, and sends Keeps as much more seldom.
inline constexpr std::uint32_t kRestLeases = 10;

/// Whether nothing would return if the member ended: it holds, wants and reserves nothing. That changes only by its own
/// events.
[[nodiscard]] bool rests(const State& state, MemberId member);
/// All of them.
[[nodiscard]] std::set<MemberId> resting(const State& state);

}  // namespace turnstile::tokens
