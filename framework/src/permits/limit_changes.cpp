#include "permits/limit_changes.hpp"

#include "permits/domain_environment.hpp"
#include "tokens/wire.hpp"

namespace turnstile::detail {

namespace {

/// The pause before a change that was not accepted is written again. All members read each attempt.
constexpr tokens::Micros kSendAgain = 50'000;

}  // namespace

void LimitChanges::send(ports::TokenLog& log, const tokens::State& state, tokens::Micros now) {
  if (state.part > 0 && state.closed) return;
  for (const auto& change : changes_) {
    if (change->sent || change->over || now < change->send_again_at) continue;
    change->sent = true;
    change->event = {.member = random_id(), .epoch = 1, .seq = 1, .body = tokens::Unknown{}};
    tokens::LimitSet body{.limiter = change->limiter, .limit = {}, .seen = state.last};
    if (change->limit) body.limit = static_cast<tokens::Count>(*change->limit);
    change->event.body = body;
    log.append(tokens::encode(change->event));
  }
}

void LimitChanges::repeat() {
  for (const auto& change : changes_) change->sent = false;
}

void LimitChanges::read(const tokens::Event& event, const tokens::Effects& effects, const tokens::State& state,
                        tokens::Micros now) {
  for (const auto& change : changes_) {
    if (!change->sent || change->event != event) continue;
    change->done = effects.outcome == tokens::Effects::Outcome::applied;
    change->not_allowed = effects.outcome == tokens::Effects::Outcome::not_allowed;
    change->elsewhere = effects.outcome == tokens::Effects::Outcome::elsewhere;
    // Stale: another change came between, so it is repeated. But an unknown limiter cannot be unset.
    const bool is_unknown = !state.closed && !state.limiters.contains(change->limiter);
    change->over = change->done || change->not_allowed || change->elsewhere || (!change->limit && is_unknown);
    change->sent = false;
    change->send_again_at = now + kSendAgain;
  }
}

}  // namespace turnstile::detail
