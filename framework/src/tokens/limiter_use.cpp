#include "tokens/limiter_use.hpp"

#include <algorithm>
#include <utility>

#include "tokens/planted.hpp"

namespace turnstile::tokens {

void LimiterUse::reset() {
  granted = given_back = surrender_to = 0;
  turn_over = false;
  turn_since.reset();
  idle_since.reset();
  fell_since.reset();
  said = {};
}

Line LimiterUse::report(const std::string& name, Count now_wants) {
  said = {.limiter = name,
          .limit = limit,
          .strict = strict,
          .wants = std::min(now_wants, kMostPermits),
          .urgent = std::min(demand.urgent, now_wants),
          .least = demand.least,
          .busy = demand.busy,
          .given_back = given_back,
          .set_aside = set_aside,
          .turn_over = std::exchange(turn_over, false),
          .outlives_fence = outlives_fence,
          .reserve = reserve};
  peak = demand.wants;
  return said;
}

bool LimiterUse::is_going() const { return letting_go && !TURNSTILE_PLANTED(gone_said_and_opened); }

bool LimiterUse::was_fenced(const Holding& holding) const {
  return holding.given_back > given_back && !TURNSTILE_PLANTED(fence_not_followed);
}

bool LimiterUse::has_enough() const {
  return held() > 0 && (held() >= demand.least || TURNSTILE_PLANTED(turn_from_the_first_permit));
}

bool LimiterUse::is_without_turn() const {
  return (held() == 0 && demand.wants == 0) || (!has_enough() && TURNSTILE_PLANTED(turn_ends_with_what_is_held));
}

bool LimiterUse::has_fallen() const {
  if (TURNSTILE_PLANTED(falls_not_said)) return false;
  return demand.urgent < said.urgent || demand.least < said.least || (demand.wants < said.wants && held() < said.wants);
}

bool LimiterUse::needs_more(Count domain_limit) const {
  return (turn_over && held() == 0) || std::min(demand.wants, domain_limit) > said.wants ||
         (demand.wants > held() && (demand.urgent > said.urgent || demand.least > said.least));
}

}  // namespace turnstile::tokens
