#pragma once
// The state of a domain: who holds how many permits of which limiter. Pure and total: apply() takes whatever comes, reads no
// clock, uses integers and ordered containers only, so that equal logs give equal states on every machine.
//
//   held   = granted - given_back     of one member and one limiter, both running totals
//   free   = limit - all that is held, also by members that drain
//   share  = what max-min fairness over all wishes gives (shares.hpp)
//
// Permits are granted as long as some are free and somebody holds less than its share. Nothing is revoked: who holds more than
// its share is expected to give back, and what is given back goes to those below theirs.
//
// Not thread-safe.

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tokens/event.hpp"

namespace turnstile::tokens {

/// The newest version of the log's meaning that this code can apply.
inline constexpr std::uint32_t kNewestVersion = 1;

/// Above these an event is void, so that nobody's memory is filled from outside.
inline constexpr std::size_t kMostMembers = 4'096;
/// Unless a member says another number, which is at most the second.
inline constexpr std::size_t kDefaultLimiters = 1'024, kMostLimiters = 16'384;
inline constexpr std::size_t kMostPartitions = 65'536;
inline constexpr std::size_t kLongestName = 255;
/// The lives that ended last are remembered, so that a late copy of their Joined revives nobody.
inline constexpr std::size_t kRememberedLives = 4'096;

struct Holding {
  Count limit = 0;  ///< what this member's configuration says; 0: nothing
  bool strict = false;
  Count set_aside = 0;
  bool outlives_fence = false;
  bool draining = false;  ///< as its member; never where it outlives a fence
  Count weight = 1;       ///< as its member
  Count wants = 0;
  Count urgent = 0;
  Count least = 1;
  Count busy = 0;
  Count granted = 0;
  Count given_back = 0;
  Count share = 0;
  Position in_line_since = kNowhere;  ///< arrival, or the end of its last turn
  Position held_since = kNowhere;     ///< when it last went from none to some

  [[nodiscard]] Count held() const { return granted - given_back; }
  bool operator==(const Holding&) const = default;
};

struct LimiterEntry {
  std::optional<Count> set;  ///< by an operator
  std::map<MemberId, Holding> holdings;
  Count wanted = 0;      ///< by all that do not drain
  bool starved = false;  ///< somebody who wants has less than it can use: turns are taken
  Count reserved = 0;    ///< the sum of State::reserves

  /// What holds now: what the operator set, else the lowest that a member's configuration says, else 0.
  [[nodiscard]] Count limit() const;
  [[nodiscard]] Count held() const;  ///< by all, also those that drain
  /// Of the limit, kept back for members that are cut off: what their configurations say, or more where more is reserved still.
  [[nodiscard]] Count aside() const;
  /// What is granted at most: the limit, less what is kept back.
  [[nodiscard]] Count shared() const;
  /// By a fence only if everybody says so.
  [[nodiscard]] bool strict() const;
  bool operator==(const LimiterEntry&) const = default;
};

struct MemberEntry {
  Joined about;
  std::uint32_t epoch = 0;
  std::uint64_t seq = 0;
  Position joined_at = kNowhere;
  Position last = kNowhere;  ///< of its last event that counted
  bool draining = false;     ///< all its partitions were claimed by others; what it holds still counts
  std::set<Partition> owns;
  std::set<Partition> unfenced;  ///< claimed by others without a fence: what it still does there is refused by nobody
  bool operator==(const MemberEntry&) const = default;
};

struct PartitionEntry {
  MemberId owner = 0;
  Position claimed_at = kNowhere;  ///< or given up
  std::uint64_t fence = 0;         ///< highest that was claimed with
  bool operator==(const PartitionEntry&) const = default;
};

/// Permits that a member may use while it is cut off. They stay its own when its lease ends, since nobody knows whether they are in
/// use: until it says so itself (Left, Line::gone, Joined::was), or has been silent for its reserve_ms (Expire::reserve).
struct Reserve {
  std::uint32_t ms = 0;
  std::map<std::string, Count, std::less<>> of;  ///< by limiter
  bool operator==(const Reserve&) const = default;
};

struct State {
  Position last = kNowhere;  ///< of the last record applied
  std::uint32_t version = 1;
  std::map<MemberId, MemberEntry> members;
  std::map<std::string, LimiterEntry, std::less<>> limiters;
  std::map<Partition, PartitionEntry> partitions;
  std::map<MemberId, Reserve> reserves;  ///< also of members that have ended
  Position limits_set_at = kNowhere;     ///< of the last LimitSet that counted
  std::map<Position, MemberId> ended;    ///< lives that ended, by when
  std::set<MemberId> ended_ids;
  std::uint64_t ignored = 0;  ///< records that changed nothing, for whatever reason
  std::uint64_t unknown = 0;  ///< of these: no events at all

  [[nodiscard]] const Holding* holding(std::string_view limiter, MemberId member) const;
  /// Permits that the member holds; 0 where it is not known.
  [[nodiscard]] Count held(std::string_view limiter, MemberId member) const;
  /// Permits of the limiter that the member has reserved.
  [[nodiscard]] Count reserved(std::string_view limiter, MemberId member) const;
  /// Limiters that the domain can have.
  [[nodiscard]] std::size_t most_limiters() const;
  bool operator==(const State&) const = default;
};

struct Effects {
  enum class Outcome : std::uint8_t {
    applied,
    unknown,      ///< no event, or of a version that does not hold yet
    duplicate,    ///< seq not above the last
    old_epoch,    ///< the member goes on under a newer one
    stranger,     ///< not a member (any more)
    revived,      ///< Joined of a life that has ended
    stale,        ///< its premise does not hold any more: Expire, PartitionsClaimed, Fenced, LimitSet, VersionSet
    not_allowed,  ///< too many, too long, out of range
  };
  Outcome outcome = Outcome::applied;
  std::optional<MemberId> ended;    ///< expired, or left
  std::vector<MemberId> drained;    ///< began to drain
  std::vector<MemberId> reclaimed;  ///< what they held under fenced limiters came back
};

std::string_view to_text(Effects::Outcome outcome);

/// Positions must rise; what is not above state.last changes nothing. Never throws but std::bad_alloc.
Effects apply(State& state, Position position, const Event& event);

}  // namespace turnstile::tokens
