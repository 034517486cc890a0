#pragma once
// A message on its way through a worker.

#include <chrono>
#include <cstdint>

#include "turnstile/message.hpp"

namespace turnstile::detail {

/// A message's number in its partition, in the order of arrival, from 0. Offsets have gaps.
using Seq = std::uint64_t;

struct Work {
  const Message* message = nullptr;  ///< lives in the lane until the message is settled
  Seq seq = 0;
  int attempt = 1;     ///< the number of the attempt that is about to start
  bool alone = false;  ///< the process must run nothing else while it runs
};

/// How long a unit with transactions should take: after this time it starts no further one. It is long enough to spread the
/// cost of a commit (0.3 to 1 ms here) over many messages. It is short enough that a concurrent transaction with its ids
/// waits only briefly (hazard: id-in-two-partitions).
inline constexpr std::chrono::milliseconds kUnitTime{50};

}  // namespace turnstile::detail
