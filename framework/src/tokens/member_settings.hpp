#pragma once
// What a member of a domain is started with.

#include <cstdint>
#include <functional>
#include <string>

#include "tokens/event.hpp"
#include "tokens/order.hpp"

namespace turnstile::tokens {

struct MemberSettings {
  Joined about;                       ///< includes its lease
  std::string log = "the token log";  ///< for messages
  /// Returns a new id of a life for each call.
  std::function<MemberId()> next_id;
  /// Safety margin: the member's own deadline is lease/8 early, so that each clock may be up to 6 % fast or slow.
  std::uint32_t margin_divisor = 8;
  /// A Keep is sent every lease / this.
  std::uint32_t keeps_per_lease = 4;
  /// If there are fewer permits than members: how long a member holds a permit before it goes to a member without one.
  Micros turn = 100'000;
  /// Permits that were idle for this time are returned while others wait.
  Micros linger = 10'000;
  /// A digest of the state is sent with a Keep each time the log has passed a multiple of this.
  Position checkpoint_every = 4'096;

  [[nodiscard]] Micros lease() const { return Micros{about.lease_ms} * 1'000; }
};

}  // namespace turnstile::tokens
