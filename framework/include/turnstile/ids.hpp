#pragma once
// New message ids, for producers that have no ids of their own.

#include "turnstile/types.hpp"

namespace turnstile {

/// A UUID of version 7 (RFC 9562): milliseconds of the system clock, a counter, and 62 random bits. Within a process
/// later ids are greater, even if the clock is set back. Ids of several processes lie close together, which keeps the
/// inbox's index small (hazard: random-ids).
/// The id has no meaning and cannot be guessed. Thread-safe, and safe after fork(). Throws std::runtime_error if the
/// system has no random numbers.
MessageId new_message_id();

}  // namespace turnstile
