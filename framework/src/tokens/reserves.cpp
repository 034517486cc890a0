#include "tokens/reserves.hpp"

#include <algorithm>

#include "tokens/planted.hpp"

namespace turnstile::tokens {

namespace {

/// What a member gets that has `has` and requests more.
Count grantable(Count wanted, Count has, Count room) {
  return TURNSTILE_PLANTED(reserve_without_room) ? wanted : std::min(wanted, has + room);
}

}  // namespace

void Reserves::request(MemberId id, const Line& line, LimiterEntry& limiter) {
  const Count has = state_.reserved(line.limiter, id);
  if (line.reserve == has) return;
  Count gets = line.reserve;
  if (line.reserve > has) {
    if (state_.reserves.size() >= kMostMembers && !state_.reserves.contains(id)) return;
    const Count limit = limiter.limit();
    Count room = limiter.closed ? 0 : std::min(limiter.aside(), limit - std::min(limit, limiter.held()));
    room -= std::min(room, limiter.reserved);
    gets = grantable(line.reserve, has, room);
    if (gets == has) return;
  }
  set(id, line.limiter, limiter, gets);
  grants_.settle(limiter);
}

void Reserves::set(MemberId id, const std::string& name, LimiterEntry& limiter, Count count) {
  const Count had = state_.reserved(name, id);
  if (had == count) return;
  limiter.reserved = limiter.reserved - had + count;
  Reserve& reserve = state_.reserves[id];
  if (count > 0) reserve.of[name] = count;
  else reserve.of.erase(name);
  if (const auto member = state_.members.find(id); member != state_.members.end())
    reserve.ms = member->second.about.reserve_ms;
  if (reserve.of.empty()) state_.reserves.erase(id);
}

void Reserves::take_over(MemberId id, MemberId was, std::uint32_t ms) {
  if (was == id) return;
  const auto left = state_.reserves.extract(was);
  if (!left) return;
  Reserve& reserve = state_.reserves[id];
  reserve.ms = ms;
  for (const auto& [name, count] : left.mapped().of) reserve.of[name] += count;
}

void Reserves::drop(MemberId id) {
  const auto found = state_.reserves.find(id);
  if (found == state_.reserves.end()) return;
  for (const auto& [name, count] : found->second.of) {
    const auto entry = state_.limiters.find(name);
    entry->second.reserved -= count;
    if (entry->second.is_unused()) state_.limiters.erase(entry);
    else grants_.settle(entry->second);
  }
  state_.reserves.erase(found);
}

}  // namespace turnstile::tokens
