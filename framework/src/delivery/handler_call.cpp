#include "delivery/handler_call.hpp"

#include <algorithm>

namespace turnstile::detail {

namespace {

/// Tells the observers when the handler starts, and when it stops by a return or an exception.
class Observed {
 public:
  Observed(const Observers& observers, const TopicPlan& plan) : observers_(observers), plan_(plan) {
    tell(&Observer::on_handler_start);
  }
  ~Observed() { tell(&Observer::on_handler_stop); }
  Observed(const Observed&) = delete;
  Observed& operator=(const Observed&) = delete;

 private:
  template <class Event>
  void tell(Event event) const {
    observers_.tell(event, std::string_view(plan_.topic), std::string_view(plan_.limiter));
  }
  const Observers& observers_;
  const TopicPlan& plan_;
};

Outcome invoke(const Unit& unit, std::span<const Message> messages, Context& context) {
  const auto& invoke = unit.topic().pipeline.invoke;
  if (unit.services().observers.empty()) return invoke(messages, context);
  const Observed observed(unit.services().observers, unit.plan());
  return invoke(messages, context);
}

}  // namespace

HandlerCall call_handler(Unit& unit, std::span<const Message> messages, Context& context, const Items& items,
                         UnitItem* culprit) {
  HandlerCall call;
  std::optional<Outcome> refused;
  ++unit.result().counts.handler_calls;
  UnitTrace::Span span(unit.trace(), SpanReport::Step::handler, messages);
  call.failure = guarded(items, culprit, [&] {
    const Outcome outcome = invoke(unit, messages, context);
    call.skipped = outcome.kind() == Outcome::Kind::skip;
    if (!outcome.settles()) refused = outcome;
  });
  if (refused) call.failure = Failure{.culprit = culprit, .why = refused->why(), .outcome = std::move(refused)};
  unit.watch().finish();
  if (call.failure) span.failed(call.failure->why);
  return call;
}

Batch::Batch(const Items& items) {
  messages.reserve(items.size());
  for (const UnitItem* item : items) {
    messages.push_back(item->message());
    attempt = std::max(attempt, item->work->attempt);
  }
}

}  // namespace turnstile::detail
