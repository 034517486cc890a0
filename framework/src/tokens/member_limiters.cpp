// A member's account of its limiters: what it opens, gives back, and requests.

#include <algorithm>
#include <utility>

#include "tokens/member.hpp"

namespace turnstile::tokens {

/// Learns which of its own lines the domain has accepted.
void Member::see_what_is_gone(const State& state, const Event& event) {
  const auto heard = [&](const std::string& name, LimiterUse& use) {
    use.letting_go = false;
    use.known = state.holding(name, id_) != nullptr;
    next_keep_ = 0;
  };
  const auto look = [&](const Line& line) {
    const auto use = uses_.find(line.limiter);
    if (use == uses_.end()) return;
    if (line.gone) heard(use->first, use->second);
    else use->second.refused = !use->second.letting_go && state.holding(line.limiter, id_) == nullptr;
  };
  if (const auto* keep = std::get_if<Keep>(&event.body)) std::for_each(keep->lines.begin(), keep->lines.end(), look);
  if (const auto* release = std::get_if<Release>(&event.body)) look(release->line);
  // Lines from before this epoch no longer count, unless they were applied already.
  if (std::holds_alternative<Joined>(event.body)) {
    for (auto& [name, use] : uses_) {
      if (use.letting_go && use.gone_in < event.epoch) heard(name, use);
    }
  }
  std::erase_if(uses_, [](const auto& of) { return of.second.closing && !of.second.letting_go && !of.second.known; });
}

bool Member::is_refused(const std::string& limiter) const {
  const auto use = uses_.find(limiter);
  return use != uses_.end() && use->second.refused;
}

Micros Member::reserve_until() const {
  if (phase_ != Phase::joined || renewed_at_ == 0) return 0;
  const Micros lasts = Micros{settings_.about.reserve_ms} * 1'000;
  return renewed_at_ + lasts - lasts / settings_.margin_divisor;
}

Count Member::reserved(const State& state, const std::string& limiter) const {
  const auto use = uses_.find(limiter);
  if (phase_ != Phase::joined || use == uses_.end() || use->second.closing || use->second.letting_go) return 0;
  return state.reserved(limiter, id_);
}

/// The state has no holding of this member: its account starts again.
void Member::start_over(const std::string& name, LimiterUse& use) {
  use.known = use.letting_go = false;
  use.reset();
  forfeit(name, 0);
}

/// Orders that were not taken yet concern permits that are lost now. A pool that opened them would start handlers with
/// them.
void Member::forfeit(const std::string& name, Count total) {
  std::erase_if(orders_, [&](const Order& order) { return order.limiter == name; });
  orders_.push_back({Order::Kind::forfeit, name, total});
}

/// Turns the member's holding in the state into orders to the pool.
void Member::follow(const State& state, const std::string& name, LimiterUse& use) {
  const Holding* holding = state.holding(name, id_);
  if (use.is_going()) return;
  if (holding == nullptr) {
    if (use.known) start_over(name, use);
    return;
  }
  use.known = true;
  use.refused = false;
  if (use.was_fenced(*holding)) {
    forfeit(name, holding->given_back);
    use.granted = use.given_back = use.surrender_to = holding->given_back;
  }
  if (holding->granted > use.granted) {
    use.granted = holding->granted;
    orders_.push_back({Order::Kind::open, name, use.granted});
  }
}

/// Returns surplus permits, and requests missing ones.
void Member::balance(const State& state, const std::string& name, LimiterUse& use, Micros now) {
  const Holding* holding = state.holding(name, id_);
  if (holding == nullptr || use.letting_go) return;
  if (use.closing) return let_go(name, use, now);
  const LimiterEntry& limiter = state.limiters.find(name)->second;
  const bool contended = limiter.wanted > limiter.shared();
  const bool idle = is_idle(use, contended, now);
  follow_turn(use, limiter.starved, now);
  surrender(name, use, *holding, idle);
  const bool overdue = is_wish_overdue(use, contended || limiter.starved, now);
  if (use.given_back > use.said.given_back) {
    if (use.turn_over) use.turn_since.reset();
    send(now, Release{use.report(name, idle ? use.demand.wants : std::max(use.peak, use.demand.wants))});
  } else if (!holding->draining && (overdue || use.needs_more(limiter.shared()))) {
    if (use.turn_over) use.turn_since.reset();
    send(now, Acquire{use.report(name, use.demand.wants)});
  }
}

/// While members wait: whether it has held more than it wants for some time.
bool Member::is_idle(LimiterUse& use, bool contended, Micros now) {
  if (!contended || use.demand.wants >= use.held()) {
    use.idle_since.reset();
    return false;
  }
  if (!use.idle_since) use.idle_since = now;
  if (now - *use.idle_since >= settings_.linger) return true;
  wake_at(*use.idle_since + settings_.linger);
  return false;
}

/// A turn begins when the member holds enough to use. Before, while it collects permits that it needs together, it has
/// not had a turn. The turn continues while permits are returned and requested again. Otherwise such a member would
/// stay first in line forever.
void Member::follow_turn(LimiterUse& use, bool starved, Micros now) {
  if (use.is_without_turn()) use.turn_since.reset();
  else if (use.has_enough() && !use.turn_since) use.turn_since = now;
  if (!starved || !use.turn_since) return;
  if (now - *use.turn_since >= settings_.turn) use.turn_over = true;
  else wake_at(*use.turn_since + settings_.turn);
}

/// Orders the pool to return the permits above the share and the idle permits, or all permits when the turn is over.
void Member::surrender(const std::string& name, LimiterUse& use, const Holding& holding, bool idle) {
  const Count held = use.held();
  Count target = std::min(held, holding.draining ? 0 : holding.share);
  if (idle) target = std::min(target, use.demand.wants);
  if (use.turn_over && held > 0) target = 0;
  const Count to = use.given_back + (held - target);
  if (to == use.surrender_to) return;
  use.surrender_to = to;
  orders_.push_back({Order::Kind::surrender, name, to});
}

/// A request that is no longer needed keeps permits from others. It is not withdrawn after only a short lull.
bool Member::is_wish_overdue(LimiterUse& use, bool others_wait, Micros now) {
  if (!others_wait || !use.has_fallen()) {
    use.fell_since.reset();
    return false;
  }
  if (!use.fell_since) use.fell_since = now;
  if (now - *use.fell_since >= settings_.turn) return true;
  wake_at(*use.fell_since + settings_.turn);
  return false;
}

void Member::let_go(const std::string& name, LimiterUse& use, Micros now) {
  Line last = use.report(name, 0);
  last.gone = true;
  last.reserve = 0;
  use.reset();
  use.demand = {};
  use.peak = 0;
  use.letting_go = true;
  use.gone_in = epoch_;
  send(now, Release{std::move(last)});
}

}  // namespace turnstile::tokens
