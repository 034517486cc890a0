#pragma once
// The events that divide a token log into parts (parts.hpp).

#include <cstdint>
#include <string>
#include <vector>

#include "tokens/line.hpp"

namespace turnstile::tokens {

/// From the next position on, the log has this many parts (parts.hpp), and part 0 grants nothing. In part 0 only.
struct Divided {
  std::uint32_t parts = 0;
  std::uint64_t division = 0;  ///< its number, chosen at random
  /// A member, and where it joined. Void in any other log, as in a later topic of the same name.
  MemberId witness = 0;
  Position joined_at = kNowhere;
  bool operator==(const Divided&) const = default;
};
/// The limiters of this part have moved out of part 0. From the next position on, this part grants them.
struct Opened {
  struct Set {
    std::string limiter;
    Count limit = 0;
    bool operator==(const Set&) const = default;
  };
  std::uint64_t division = 0;  ///< that was read in part 0; void if this part is of another one
  std::uint32_t part = 0;      ///< void in any other part
  std::vector<Set> sets;       ///< as operators had set them in part 0
  bool operator==(const Opened&) const = default;
};
}  // namespace turnstile::tokens
