#pragma once
// Shows a state to people.

#include <cstdint>
#include <vector>

#include "tokens/state.hpp"
#include "turnstile/tokens.hpp"

namespace turnstile::detail {

PermitsView view_of(const tokens::State& state);

/// The view of one part of a log (tokens/parts.hpp).
struct PartView {
  PermitsView view;
  std::uint32_t part = 0, parts = 1;
  bool closed = false;
};
PartView part_view_of(const tokens::State& state);
/// Of the parts of a log, part 0 first, perhaps without some of the others. Part 0 of a divided log tells the limit of a
/// limiter only while its home is closed: what operators set there later is not known to part 0.
PermitsView merged(std::vector<PartView> parts);

}  // namespace turnstile::detail
