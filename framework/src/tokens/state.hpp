#pragma once
// The state of a domain: the permits of each limiter that each member holds. apply() changes it (apply.hpp). It has
// only integers and ordered containers, so that equal logs give equal states on every machine.
//
//   held   = granted - given_back     of a member and a limiter, both running totals
//   free   = limit - the sum of held, including members that drain
//   share  = the result of max-min fairness over all wishes (shares.hpp)
//
// Permits are granted as long as some are free and a member holds less than its share. No permit is revoked. A member
// that holds more than its share must return the surplus, which then goes to members below their share.
//
// Not thread-safe.

#include <map>
#include <set>
#include <string_view>

#include "tokens/event.hpp"

namespace turnstile::tokens {

/// The newest version of the log that this code can apply.
inline constexpr std::uint32_t kNewestVersion = 2;

/// An event that exceeds these limits is void, so that no other program can fill a member's memory.
inline constexpr std::size_t kMostMembers = 4'096;
/// The default, unless a member requests another number, which is at most the second.
inline constexpr std::size_t kDefaultLimiters = 1'024, kMostLimiters = 16'384;
inline constexpr std::size_t kMostPartitions = 65'536;
inline constexpr std::size_t kLongestName = 255;
/// The lives that ended last are remembered, so that a late copy of their Joined revives none of them.
inline constexpr std::size_t kRememberedLives = 4'096;
inline constexpr std::size_t kRememberedLimitChanges = 100;

struct Holding {
  Count limit = 0;  ///< the limit in this member's configuration; 0: none
  bool strict = false;
  Count set_aside = 0;
  bool outlives_fence = false;
  bool draining = false;  ///< as its member; false if it outlives a fence
  Count weight = 1;       ///< as its member
  Count wants = 0;
  Count urgent = 0;
  Count least = 1;
  Count busy = 0;
  Count granted = 0;
  Count given_back = 0;
  Count share = 0;
  Position in_line_since = kNowhere;  ///< arrival, or the end of its last turn
  Position held_since = kNowhere;     ///< when it last got a permit after having none

  [[nodiscard]] Count held() const { return granted - given_back; }
  bool operator==(const Holding&) const = default;
};

struct LimiterEntry {
  std::optional<Count> set;  ///< by an operator
  std::map<MemberId, Holding> holdings;
  Count wanted = 0;      ///< by all members that do not drain
  bool starved = false;  ///< a member has less than it can use: members take turns
  Count reserved = 0;    ///< the sum of State::reserves
  bool closed = false;   ///< as State::closed: nothing is granted

  /// The limit in effect: the operator's, or else the lowest configured one, or else 0.
  [[nodiscard]] Count limit() const;
  [[nodiscard]] Count held() const;  ///< by all members, including those that drain
  /// The part of the limit that is set aside for members that cannot reach the log. It is the largest configured
  /// number, or the number that is still reserved if that is higher.
  [[nodiscard]] Count aside() const;
  /// The most that can be granted: the limit, less the part that is set aside. 0: it is closed.
  [[nodiscard]] Count shared() const;
  /// True if at least one member requests it: then no fence returns permits.
  [[nodiscard]] bool strict() const;
  /// Nobody holds or reserves permits of it, and no operator has set it: the entry can go.
  [[nodiscard]] bool is_unused() const { return holdings.empty() && !set && reserved == 0; }
  bool operator==(const LimiterEntry&) const = default;
};

struct MemberEntry {
  Joined about;
  std::uint32_t epoch = 0;
  std::uint64_t seq = 0;
  Position joined_at = kNowhere;
  Position last = kNowhere;  ///< position of its last accepted event
  bool draining = false;     ///< other members claimed all its partitions; its permits still count
  std::set<Partition> owns;
  std::set<Partition> unfenced;  ///< claimed by others without a fence: no database rejects its effects there
  bool operator==(const MemberEntry&) const = default;
};

struct PartitionEntry {
  MemberId owner = 0;
  Position claimed_at = kNowhere;  ///< or released
  std::uint64_t fence = 0;         ///< the highest fence of any claim
  bool operator==(const PartitionEntry&) const = default;
};

/// Permits that a member may use while it cannot reach the log. They stay its own after the end of its lease, because
/// they may be in use. They return when the process reports it (Left, Line::gone, Joined::was), or has been silent for
/// its reserve_ms (Expire::reserve).
struct Reserve {
  std::uint32_t ms = 0;
  std::map<std::string, Count, std::less<>> of;  ///< by limiter
  bool operator==(const Reserve&) const = default;
};

/// The accepted changes of limits, the newest last. For people: it has no influence on permits, so it is no part of the
/// digest, and states that differ only in it are equal. Builds before it keep none of it in their snapshots.
struct LimitHistory {
  struct Change {
    Position at = kNowhere;
    LimitSet set;
    bool operator==(const Change&) const = default;
  };
  std::vector<Change> changes;

  void add(Position at, const LimitSet& set);
  bool operator==(const LimitHistory&) const { return true; }
};

struct State {
  Position last = kNowhere;  ///< of the last record applied
  std::uint32_t version = 1;
  std::uint32_t parts = 1, part = 0;  ///< of the log, and which of them this is (parts.hpp)
  std::uint64_t division = 0;         ///< see Divided
  bool closed = false;                ///< the part grants nothing: it was divided, or is not open yet
  std::map<MemberId, MemberEntry> members;
  std::map<std::string, LimiterEntry, std::less<>> limiters;
  std::map<Partition, PartitionEntry> partitions;
  std::map<MemberId, Reserve> reserves;  ///< including members that have ended
  Position limits_set_at = kNowhere;     ///< of the last accepted LimitSet
  std::map<Position, MemberId> ended;    ///< lives that ended, by position
  std::set<MemberId> ended_ids;
  std::uint64_t ignored = 0;  ///< records that changed nothing, for any reason
  std::uint64_t unknown = 0;  ///< of these: records that are no events
  LimitHistory limit_history;

  [[nodiscard]] const Holding* holding(std::string_view limiter, MemberId member) const;
  /// Permits that the member holds. 0 if there is no such holding.
  [[nodiscard]] Count held(std::string_view limiter, MemberId member) const;
  /// Permits of the limiter that the member has reserved.
  [[nodiscard]] Count reserved(std::string_view limiter, MemberId member) const;
  /// The largest number of limiters that the domain can have.
  [[nodiscard]] std::size_t most_limiters() const;
  bool operator==(const State&) const = default;
};

}  // namespace turnstile::tokens
