#pragma once
// The common wire format of events and snapshots.

#include "tokens.pb.h"
#include "tokens/event.hpp"

namespace turnstile::tokens {

inline constexpr std::uint32_t kMagic = 0x7473'746c;  // "tstl"

inline void write_partition(const Partition& partition, wire::Partition& to) {
  to.set_topic(partition.topic);
  to.set_number(partition.number);
  to.set_group(partition.group);
  to.set_store(partition.store);
}
inline Partition read_partition(const wire::Partition& from) {
  return {from.topic(), from.number(), from.group(), from.store()};
}

inline void write_joined(const Joined& joined, wire::Joined& to) {
  to.set_host(joined.host);
  to.set_pid(joined.pid);
  to.set_client(joined.client);
  to.set_lease_ms(joined.lease_ms);
  to.set_weight(joined.weight);
  to.set_knows(joined.knows);
  to.set_reserve_ms(joined.reserve_ms);
  to.set_most_limiters(joined.most_limiters);
  for (const MemberId was : joined.was) to.add_was(was);
  to.set_knows_rest(joined.knows_rest);
  to.set_division(joined.division);
  to.set_part(joined.part);
}
inline Joined read_joined(const wire::Joined& from) {
  return {.host = from.host(),
          .pid = from.pid(),
          .client = from.client(),
          .lease_ms = from.lease_ms(),
          .weight = from.weight(),
          .knows = from.knows(),
          .reserve_ms = from.reserve_ms(),
          .most_limiters = from.most_limiters(),
          .was = {from.was().begin(), from.was().end()},
          .knows_rest = from.knows_rest(),
          .division = from.division(),
          .part = from.part()};
}

inline void write_limit_set(const LimitSet& set, wire::LimitSet& to) {
  to.set_limiter(set.limiter);
  if (set.limit) to.set_limit(*set.limit);
  to.set_seen(set.seen);
  to.set_by(set.by);
  to.set_at_ms(set.at_ms);
}
inline LimitSet read_limit_set(const wire::LimitSet& from) {
  LimitSet set{.limiter = from.limiter(), .limit = {}, .seen = from.seen(), .by = from.by(), .at_ms = from.at_ms()};
  if (from.has_limit()) set.limit = from.limit();
  return set;
}

}  // namespace turnstile::tokens
