#include "permits/limit_changes.hpp"

#include "permits/domain_environment.hpp"
#include "tokens/wire.hpp"

namespace turnstile::detail {

void LimitChanges::send(ports::TokenLog& log, tokens::Position seen) {
  for (const auto& change : changes_) {
    if (change->sent || change->over) continue;
    change->sent = true;
    change->event = {.member = random_id(), .epoch = 1, .seq = 1, .body = tokens::Unknown{}};
    tokens::LimitSet body{.limiter = change->limiter, .limit = {}, .seen = seen};
    if (change->limit) body.limit = static_cast<tokens::Count>(*change->limit);
    change->event.body = body;
    log.append(tokens::encode(change->event));
  }
}

void LimitChanges::repeat() {
  for (const auto& change : changes_) change->sent = false;
}

void LimitChanges::read(const tokens::Event& event, const tokens::Effects& effects, const tokens::State& state) {
  for (const auto& change : changes_) {
    if (!change->sent || change->event != event) continue;
    change->done = effects.outcome == tokens::Effects::Outcome::applied;
    change->not_allowed = effects.outcome == tokens::Effects::Outcome::not_allowed;
    change->elsewhere = effects.outcome == tokens::Effects::Outcome::elsewhere;
    // Stale: another change came between, or the part is not open yet, so it is repeated. But an unknown limiter cannot
    // be unset.
    const bool is_unknown = !state.closed && !state.limiters.contains(change->limiter);
    change->over = change->done || change->not_allowed || change->elsewhere || (!change->limit && is_unknown);
    change->sent = false;
  }
}

}  // namespace turnstile::detail
