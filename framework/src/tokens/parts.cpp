#include "tokens/parts.hpp"

#include <algorithm>

#include "message/digest.hpp"
#include "tokens/planted.hpp"
#include "tokens/state.hpp"

namespace turnstile::tokens {

namespace {

bool has_permits_out(const LimiterEntry& limiter) {
  return (limiter.held() > 0 && !TURNSTILE_PLANTED(opened_while_held)) || limiter.reserved > 0;
}

}  // namespace

std::uint32_t part_of(std::string_view limiter, std::uint32_t parts) {
  if (parts <= 1) return 0;
  const detail::Sha256 hash = detail::sha256(limiter);
  std::uint64_t first = 0;
  for (std::size_t i = 0; i < 8; ++i) first = first << 8 | hash[i];
  return 1 + static_cast<std::uint32_t>(first % (parts - 1));
}

bool is_left(const State& state) { return is_directory(state) && !is_in_use(state); }

bool is_directory(const State& state) { return state.parts > 1 && state.part == 0; }

bool is_in_use(const State& directory) {
  return std::any_of(directory.limiters.begin(), directory.limiters.end(),
                     [](const auto& limiter) { return has_permits_out(limiter.second); });
}

Openings moved_out(const State& directory) {
  Openings all;
  for (std::uint32_t part = 1; part < directory.parts; ++part)
    all[part] = {.division = directory.division, .part = part, .sets = {}};
  for (const auto& [name, limiter] : directory.limiters) {
    const bool is_out = has_permits_out(limiter);
    if (!is_out && !limiter.set) continue;
    const auto home = all.find(part_of(name, directory.parts));
    if (home == all.end()) continue;
    if (is_out) all.erase(home);
    else home->second.sets.push_back({.limiter = name, .limit = *limiter.set});
  }
  return all;
}

std::optional<Opened> moved_out(const State& directory, std::uint32_t part) {
  const Openings all = moved_out(directory);
  const auto found = all.find(part);
  return found == all.end() ? std::nullopt : std::optional(found->second);
}

bool is_same_part(const State& one, const State& other) {
  return one.part == other.part && (one.part == 0 || one.division == other.division);
}

bool can_become(const State& state, const State& newer) {
  return state.part == newer.part &&
         (state.parts == 1 || (state.parts == newer.parts && state.division == newer.division));
}

State first_state(const State& directory, std::uint32_t part) {
  State state;
  state.version = kDividedVersion;
  state.parts = directory.parts;
  state.part = part;
  state.division = directory.division;
  state.closed = true;
  return state;
}

}  // namespace turnstile::tokens
