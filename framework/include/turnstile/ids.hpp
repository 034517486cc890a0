#pragma once
// Ids for messages, where the producer has none of its own.

#include "turnstile/types.hpp"

namespace turnstile {

/// A UUID of version 7 (RFC 9562): milliseconds of the system clock, a counter, and 62 random bits. Later ones of one process are
/// greater, also when the clock is set back; those of many processes fall close together, which keeps the inbox's index small
/// (hazard: random-ids). Bears no meaning, and cannot be guessed. Thread-safe, and safe after fork(). Throws std::runtime_error when the system
/// has no random numbers.
MessageId new_message_id();

}  // namespace turnstile
