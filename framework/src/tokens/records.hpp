#pragma once
// Divides the body of an event that is too long for one record. Pure.

#include <vector>

#include "tokens/event.hpp"

namespace turnstile::tokens {

/// The records of an event have about this many bytes at most. Readers accept 1,000,000 (kLongestRecord), and a topic
/// 1,048,588 by default (max.message.bytes). An administrator may have lowered that.
inline constexpr std::size_t kFullRecord = 500'000;

using Body = decltype(Event::body);

/// The body in pieces that mean the same one after another. Lines, claims and revocations mean the same in any number of
/// events. Other bodies are never long, and are the only piece.
std::vector<Body> in_records(Body body);

}  // namespace turnstile::tokens
