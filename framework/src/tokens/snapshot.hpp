#pragma once
// Converts a state to bytes and back, and computes its digest.

#include <optional>
#include <string>
#include <string_view>

#include "tokens/state.hpp"

namespace turnstile::tokens {

/// The digest of a state: the first 8 bytes of a SHA-256. Equal states have equal digests on every machine, and in
/// every version of this code that interprets the state in the same way.
std::uint64_t digest(const State& state);

std::string save(const State& state);
/// Absent if the bytes are no snapshot, or differ from the saved one.
std::optional<State> restore(std::string_view bytes);

}  // namespace turnstile::tokens
