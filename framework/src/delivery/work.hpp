#pragma once
// A message on its way through a worker.

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

}  // namespace turnstile::detail
