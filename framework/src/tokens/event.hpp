#pragma once
// The events in a token log. The order of the log decides: every member applies the same events in the same order to
// the same state (state.hpp). All members therefore know the same holders without asking each other.
//
// The grammar of a member's life, in the order of its sequence numbers:
//
//   life    = Joined { Keep | Acquire | Release | PartitionsClaimed | PartitionsRevoked | Drained | Expire } [ Left ]
//   again   = Joined with a higher epoch: the same member after an error of its producer. It keeps its permits.
//
// Expire, LimitSet, VersionSet, Divided and Opened contain nothing about their sender. All but Expire may come from
// others.
//
// Events of a member contain the whole state so far, not a difference: the number of returned permits is a running
// total. If an event is lost, doubled or late, the next one corrects it, or nothing changes.
//
// On the wire: tokens.proto, written and read by wire.hpp.

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "tokens/division.hpp"
#include "tokens/line.hpp"

namespace turnstile::tokens {

/// A partition as a consumer group with a store owns it. Only claims of the same group and store follow each other. The
/// database counts epochs for each group, and owners of different groups run at the same time.
struct Partition {
  std::string topic;
  std::int32_t number = 0;
  std::string group{};
  std::string store{};  ///< the store that counts the epochs; empty without a database
  auto operator<=>(const Partition&) const = default;
};

struct Joined {
  std::string host;
  std::uint32_t pid = 0;
  std::string client;          ///< its name for people
  std::uint32_t lease_ms = 0;  ///< after a longer silence it may be expired
  std::uint32_t weight = 1;    ///< its share is proportional to it
  std::uint32_t knows = 1;     ///< the newest version that it can apply
  /// For how long after its last event it may use its reserve. Other members count the reserve as used until then.
  std::uint32_t reserve_ms = 0;
  std::uint32_t most_limiters = 0;  ///< of the domain; the largest value of any member is in effect. 0: the default
  std::vector<MemberId> was{};      ///< earlier lives of the same process, whose reserves it takes over
  /// Its build knows that a member that rests (apply.hpp) has a longer lease. No influence on permits, so it is no part of
  /// the digest.
  bool knows_rest = false;
  std::uint64_t division = 0;  ///< in the parts above 0: void in a part of another division (see Divided)
  std::uint32_t part = 0;      ///< void in any other part, as a copy
  bool operator==(const Joined&) const = default;
};
/// What has an effect only when the event is applied. It is no part of the state.
inline void forget_what_is_applied(Joined& joined) {
  joined.was.clear();
  joined.division = 0;
  joined.part = 0;
}

/// The digest of the state after `position`.
struct Checkpoint {
  Position position = kNowhere;
  std::uint64_t digest = 0;
  bool operator==(const Checkpoint&) const = default;
};

struct Keep {
  std::vector<Line> lines;
  std::optional<Checkpoint> checkpoint;  ///< members compare it; not part of the state
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
    /// The partition's epoch in the database. This owner incremented it before it wrote the claim, so the database
    /// rejects earlier owners. The claim is void if the fence is not above the known one. 0: no database, so nothing is
    /// rejected.
    std::uint64_t fence = 0;
    /// Without a fence: the position of the claim that it replaces. The claim is void if another one came between.
    Position previous = kNowhere;
    bool operator==(const Claim&) const = default;
  };
  std::vector<Claim> claims;
  bool operator==(const PartitionsClaimed&) const = default;
};
struct PartitionsRevoked {
  std::vector<Partition> partitions;
  bool operator==(const PartitionsRevoked&) const = default;
};
/// A member that lost all its partitions reports that nothing of it runs any more.
struct Drained {
  bool operator==(const Drained&) const = default;
};
/// In effect only if `member` has written nothing after `silent_since`.
struct Expire {
  MemberId member = 0;
  Position silent_since = kNowhere;
  bool reserve = false;  ///< of a member that has ended: it has also been silent for its reserve_ms
  bool operator==(const Expire&) const = default;
};
/// An operator's limit. It overrides the configured values until it is unset.
struct LimitSet {
  std::string limiter;
  std::optional<Count> limit;  ///< absent: unset
  Position seen = kNowhere;    ///< the last position that the operator had read; void if a limit was set after it
  std::string by{};            ///< the operator, for people; empty: unknown, as from earlier builds
  std::int64_t at_ms = 0;      ///< the operator's clock, in milliseconds since 1970; 0: unknown
  bool operator==(const LimitSet&) const = default;
};
/// From the next position on, this version defines the meaning of the log.
struct VersionSet {
  std::uint32_t version = 0;
  bool operator==(const VersionSet&) const = default;
};
struct Left {
  bool operator==(const Left&) const = default;
};
/// Bytes that are no event, or an event that this version of the log does not know.
struct Unknown {
  bool operator==(const Unknown&) const = default;
};

struct Event {
  MemberId member = 0;
  std::uint32_t epoch = 0;  ///< of the member's producer; increases after each of its errors
  std::uint64_t seq = 0;    ///< within the epoch, from 1
  std::variant<Unknown, Joined, Keep, Acquire, Release, PartitionsClaimed, PartitionsRevoked, Drained, Expire, LimitSet,
               VersionSet, Divided, Opened, Left>
      body;
  bool operator==(const Event&) const = default;
};

}  // namespace turnstile::tokens
