#pragma once
// What events and snapshots share on the wire.

#include "tokens.pb.h"
#include "tokens/event.hpp"

namespace turnstile::tokens {

inline constexpr std::uint32_t kMagic = 0x7473'746c;  // "tstl"

inline void write_partition(const Partition& partition, wire::Partition& to) {
  to.set_topic(partition.topic);
  to.set_number(partition.number);
}
inline Partition read_partition(const wire::Partition& from) { return {from.topic(), from.number()}; }

inline void write_joined(const Joined& joined, wire::Joined& to) {
  to.set_host(joined.host);
  to.set_pid(joined.pid);
  to.set_client(joined.client);
  to.set_lease_ms(joined.lease_ms);
  to.set_weight(joined.weight);
  to.set_knows(joined.knows);
}
inline Joined read_joined(const wire::Joined& from) {
  return {.host = from.host(),
          .pid = from.pid(),
          .client = from.client(),
          .lease_ms = from.lease_ms(),
          .weight = from.weight(),
          .knows = from.knows()};
}

}  // namespace turnstile::tokens
