#pragma once
// A state as bytes, and back; and its digest.

#include <optional>
#include <string>
#include <string_view>

#include "tokens/state.hpp"

namespace turnstile::tokens {

/// Equal states have equal digests, on every machine and in every version of this code that gives the state the same meaning.
/// The first 8 bytes of a SHA-256.
std::uint64_t digest(const State& state);

std::string save(const State& state);
/// Nothing when the bytes are no snapshot, or not the one that was saved.
std::optional<State> restore(std::string_view bytes);

}  // namespace turnstile::tokens
