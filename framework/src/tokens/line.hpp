#pragma once
// A member's report about itself and a limiter, and the numbers that it is made of.

#include <cstdint>
#include <string>

namespace turnstile::tokens {

/// An offset in the token log.
using Position = std::int64_t;
inline constexpr Position kNowhere = -1;

/// A life of a process in a domain, chosen at random. After its expiry a process returns with another id.
using MemberId = std::uint64_t;

using Count = std::uint64_t;
/// The largest limit, and the largest request.
inline constexpr Count kMostPermits = 1'000'000'000;

/// A member's report about itself and a limiter.
struct Line {
  std::string limiter;
  Count limit = 0;         ///< the limit in its configuration; 0: none
  bool strict = false;     ///< its permits return when the lease ends, never by a fence
  Count wants = 0;         ///< permits that it could use now: those in use, and those that its callers wait for
  Count urgent = 0;        ///< of `wants`, those that go before other members' normal ones
  Count least = 1;         ///< the smallest useful number: the first waiting caller needs it at once
  Count busy = 0;          ///< in use; for people
  Count given_back = 0;    ///< returned since it joined; a running total
  Count set_aside = 0;     ///< of the limit, for members that cannot reach the log; the total of all of them
  bool turn_over = false;  ///< the member goes to the end of the line
  /// Calls run under these permits that no fence of the database rejects: the permits return only when the lease ends.
  bool outlives_fence = false;
  Count reserve = 0;  ///< of set_aside, for this member
  bool gone = false;  ///< the process no longer uses the limiter: it holds and reserves nothing

  bool operator==(const Line&) const = default;
};

}  // namespace turnstile::tokens
