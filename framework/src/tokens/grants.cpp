#include "tokens/grants.hpp"

#include <algorithm>

#include "tokens/planted.hpp"

namespace turnstile::tokens {

namespace {

/// Whether its permits count as held. All do, also those of members that drain or that want nothing.
bool counts(const Holding& holding) {
  if (TURNSTILE_PLANTED(draining_not_counted) && holding.draining) return false;
  return !(TURNSTILE_PLANTED(counted_by_place_in_line) && holding.wants == 0);
}

/// A limit can be lowered below the number of permits that are held.
Count left_of(Count limit, Count held) {
  return limit - (TURNSTILE_PLANTED(lowered_limit_grants) ? held : std::min(limit, held));
}

}  // namespace

void Grants::settle(LimiterEntry& limiter) {
  const Count limit = limiter.shared();
  Count held = 0, draining = 0;
  limiter.wanted = 0;
  line_.clear();
  for (auto& [id, holding] : limiter.holdings) {
    holding.share = 0;
    if (!counts(holding)) continue;
    held += holding.held();
    if (holding.draining) draining += holding.held();
    if (holding.draining || holding.wants == 0) continue;
    limiter.wanted += holding.wants;
    line_.push_back(&holding);
  }
  std::sort(line_.begin(), line_.end(),
            [](const Holding* a, const Holding* b) { return a->in_line_since < b->in_line_since; });
  wishes_.clear();
  for (const Holding* holding : line_)
    wishes_.push_back(
        {.wants = holding->wants, .urgent = holding->urgent, .least = holding->least, .weight = holding->weight});
  limiter.starved = divide(limit - std::min(limit, draining), wishes_);
  Count free = left_of(limit, held);
  for (std::size_t i = 0; i < line_.size(); ++i) {
    Holding& holding = *line_[i];
    holding.share = wishes_[i].share;
    if (free == 0 || holding.held() >= holding.share) continue;
    const Count more = std::min(free, holding.share - holding.held());
    if (holding.held() == 0) holding.held_since = at_;
    holding.granted += more;
    free -= more;
  }
}

}  // namespace turnstile::tokens
