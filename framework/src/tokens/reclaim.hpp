#pragma once
// Reclaims the permits of a member that lost its partitions, or whose lease ended.
//
// A member whose partitions all have new owners drains: it gets no more permits. Its permits return at once if the new
// owners' fences reject its handlers. Otherwise they return with its own events, or when its lease ends.

#include "tokens/apply.hpp"
#include "tokens/grants.hpp"
#include "tokens/reserves.hpp"
#include "tokens/state.hpp"

namespace turnstile::tokens {

class Reclaim {
 public:
  /// `at`: the position of the event that is applied.
  Reclaim(State& state, Position at, Grants& grants, Reserves& reserves, Effects& effects)
      : state_(state), at_(at), grants_(grants), reserves_(reserves), effects_(effects) {}

  /// Another member has claimed the partition. Returns whether `owner` is still a member.
  bool displace(MemberId owner, const PartitionsClaimed::Claim& claim);
  /// Earlier owners that lost the partition without a fence are fenced there now.
  void fence(const Partition& partition);
  void drain_if_it_owns_nothing(MemberId id);
  void set_draining(MemberId id, MemberEntry& member, bool draining);
  /// A member proposes that the lease of another member has ended.
  Effects::Outcome expire(const Expire& expire);
  /// The lease of the member has ended, or the member has left: all its permits return.
  void end(MemberId id);

 private:
  void reclaim(MemberId id);

  State& state_;
  const Position at_;
  Grants& grants_;
  Reserves& reserves_;
  Effects& effects_;
};

}  // namespace turnstile::tokens
