#pragma once
// The reserves of the members: permits that a member may use while it cannot reach the log.

#include <string>

#include "tokens/grants.hpp"
#include "tokens/state.hpp"

namespace turnstile::tokens {

class Reserves {
 public:
  Reserves(State& state, Grants& grants) : state_(state), grants_(grants) {}

  /// The member requests the reserve of its line. It gets it if there is room in the part that is set aside, and in the
  /// limit beside the held permits. Held and reserved permits together never exceed the limit, unless the limit was
  /// lowered.
  void request(MemberId id, const Line& line, LimiterEntry& limiter);
  void set(MemberId id, const std::string& name, LimiterEntry& limiter, Count count);
  /// `was` is an earlier life of the same process: the process knows what it uses of that reserve.
  void take_over(MemberId id, MemberId was, std::uint32_t ms);
  void drop(MemberId id);

 private:
  State& state_;
  Grants& grants_;
};

}  // namespace turnstile::tokens
