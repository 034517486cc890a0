#pragma once
// What is written to a token log. The log's order decides: every member applies the same events in the same order to the same
// state (state.hpp), so all know the same holders without asking anybody.
//
// The grammar of one member's life, in the order of its sequence numbers:
//
//   life    = Joined { Keep | Acquire | Release | PartitionsClaimed | PartitionsRevoked | Drained | Expire } [ Left ]
//   again   = Joined with a higher epoch: the same member after an error of its producer. It keeps what it holds.
//
// Expire, LimitSet and VersionSet say nothing about their sender; LimitSet and VersionSet may come from who is no member (the
// command line).
//
// Events of a member state the whole truth so far, not a difference: the permits it has given back are a running total.
// So an event that is lost, doubled or late is made good by the next one, or changes nothing.
//
// On the wire: tokens.proto, by wire.hpp.

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace turnstile::tokens {

/// Offset in the token log.
using Position = std::int64_t;
inline constexpr Position kNowhere = -1;

/// One life of one process in a domain; chosen at random. After its expiry a process comes back under another.
using MemberId = std::uint64_t;

using Count = std::uint64_t;
/// No limit, and no wish, is above this.
inline constexpr Count kMostPermits = 1'000'000'000;

/// What a member says of itself and one limiter.
struct Line {
  std::string limiter;
  Count limit = 0;         ///< what its configuration says; 0: nothing
  bool strict = false;     ///< reclaimed when the lease ends, never by a fence
  Count wants = 0;         ///< permits that it could use now: those in use, and those waited for
  Count urgent = 0;        ///< of `wants`, those that go before others' ordinary ones
  Count least = 1;         ///< fewer than this help it nothing: what the first that waits must have at once
  Count busy = 0;          ///< in use; for people to look at
  Count given_back = 0;    ///< since it joined; a running total
  Count set_aside = 0;     ///< of the limit, kept back for members that are cut off; of all of them together
  bool turn_over = false;  ///< goes to the end of the line of those who wait
  /// Calls run under these permits that no fence of the database refuses: they come back with the lease alone.
  bool outlives_fence = false;
  Count reserve = 0;  ///< of set_aside, what this member asks for itself
  bool gone = false;  ///< this process does not use the limiter any more: it holds nothing, and reserves nothing

  bool operator==(const Line&) const = default;
};

/// A partition as one consumer group with one store has it. Only claims of the same group and store follow each other: the
/// database counts epochs for each group, and another group's owner runs beside this one.
struct Partition {
  std::string topic;
  std::int32_t number = 0;
  std::string group{};
  std::string store{};  ///< whose epochs are counted; empty without a database
  auto operator<=>(const Partition&) const = default;
};

struct Joined {
  std::string host;
  std::uint32_t pid = 0;
  std::string client;          ///< what people call it
  std::uint32_t lease_ms = 0;  ///< silent for longer, and it may be expired
  std::uint32_t weight = 1;    ///< its share is in proportion
  std::uint32_t knows = 1;     ///< newest version that it can apply
  /// So long after its last event it may go on with what it has reserved; others count that for used until then.
  std::uint32_t reserve_ms = 0;
  std::uint32_t most_limiters = 0;  ///< of the domain; the most that a member says holds. 0: the default
  std::vector<MemberId> was{};      ///< lives of the same process before this one, whose reserves it takes over
  bool operator==(const Joined&) const = default;
};

/// Digest of the state after `position`.
struct Checkpoint {
  Position position = kNowhere;
  std::uint64_t digest = 0;
  bool operator==(const Checkpoint&) const = default;
};

struct Keep {
  std::vector<Line> lines;
  std::optional<Checkpoint> checkpoint;  ///< compared by the members, not part of the state
  bool operator==(const Keep&) const = default;
};
struct Acquire {
  Line line;
  bool operator==(const Acquire&) const = default;
};
struct Release {
  Line line;
  bool operator==(const Release&) const = default;
};

struct PartitionsClaimed {
  struct Claim {
    Partition partition;
    /// The partition's epoch in the database, counted up by this owner before it wrote this: what earlier owners may still try
    /// is refused there. Void if not above the one known. 0: no database, nothing is refused.
    std::uint64_t fence = 0;
    Position previous = kNowhere;  ///< without a fence: of the claim that it replaces; void if another came between
    bool operator==(const Claim&) const = default;
  };
  std::vector<Claim> claims;
  bool operator==(const PartitionsClaimed&) const = default;
};
struct PartitionsRevoked {
  std::vector<Partition> partitions;
  bool operator==(const PartitionsRevoked&) const = default;
};
/// A member that lost all its partitions says that nothing of it runs any more.
struct Drained {
  bool operator==(const Drained&) const = default;
};
/// Honoured if `member` has written nothing after `silent_since`.
struct Expire {
  MemberId member = 0;
  Position silent_since = kNowhere;
  bool reserve = false;  ///< of a member that has ended: it has been silent for its reserve_ms, too
  bool operator==(const Expire&) const = default;
};
/// By an operator; goes before what configurations say, until it is unset.
struct LimitSet {
  std::string limiter;
  std::optional<Count> limit;  ///< nothing: unset
  Position seen = kNowhere;    ///< what the operator had read; void if a limit was set after that
  bool operator==(const LimitSet&) const = default;
};
/// From the next position on the log means what this version says it means.
struct VersionSet {
  std::uint32_t version = 0;
  bool operator==(const VersionSet&) const = default;
};
struct Left {
  bool operator==(const Left&) const = default;
};
/// Bytes that are no event, or none that this version of the log knows.
struct Unknown {
  bool operator==(const Unknown&) const = default;
};

struct Event {
  MemberId member = 0;
  std::uint32_t epoch = 0;  ///< of the member's producer; counts up after each of its errors
  std::uint64_t seq = 0;    ///< within the epoch, from 1
  std::variant<Unknown, Joined, Keep, Acquire, Release, PartitionsClaimed, PartitionsRevoked, Drained, Expire, LimitSet,
               VersionSet, Left>
      body;
  bool operator==(const Event&) const = default;
};

}  // namespace turnstile::tokens
