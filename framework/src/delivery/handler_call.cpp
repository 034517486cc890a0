#include "delivery/handler_call.hpp"

#include <algorithm>
#include <exception>

#include "turnstile/text.hpp"

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

/// `thrown`: null if the handler returned an outcome.
bool breaks_on(const Unit& unit, const Failure& failure, const std::exception_ptr& thrown) {
  // The handler has judged the message, not the service.
  if (failure.outcome && failure.outcome->kind() == Outcome::Kind::dead_letter) return false;
  try {
    return unit.topic().pipeline.breaks_on(thrown);
  } catch (...) {
    return false;  // the predicate's own exception
  }
}

void tell_closed(const Unit& unit) {
  unit.services().run_log->info(unit.place().at, "the circuit breaker of topic " + unit.plan().topic +
                                                     " is closed: its probes succeeded, and its handlers start again");
}

}  // namespace

HandlerCall call_handler(Unit& unit, std::span<const Message> messages, Context& context, const Items& items,
                         UnitItem* culprit) {
  HandlerCall call;
  std::optional<Outcome> refused;
  ++unit.result().counts.handler_calls;
  UnitTrace::Span span(unit.trace(), SpanReport::Step::handler, messages);
  HandlerBreaker* const breaker = unit.topic().breaker.get();
  std::exception_ptr thrown;
  call.failure = guarded(items, culprit, [&] {
    const Outcome outcome = [&] {
      if (breaker == nullptr) return invoke(unit, messages, context);
      try {
        return invoke(unit, messages, context);
      } catch (...) {
        thrown = std::current_exception();
        throw;
      }
    }();
    call.skipped = outcome.kind() == Outcome::Kind::skip;
    if (!outcome.settles()) refused = outcome;
  });
  if (refused) call.failure = Failure{.culprit = culprit, .why = refused->why(), .outcome = std::move(refused)};
  unit.watch().finish();
  if (call.failure) span.failed(call.failure->why);
  if (breaker == nullptr) return call;
  if (call.failure) call.failure->breaks = breaks_on(unit, *call.failure, thrown);
  const bool answers = !call.failure || !call.failure->breaks;
  if (answers && breaker->succeeded(std::chrono::steady_clock::now()) == HandlerBreaker::Change::closed)
    tell_closed(unit);
  return call;
}

void count_failure(Unit& unit, Failure& failure) {
  if (!failure.breaks) return;
  HandlerBreaker& breaker = *unit.topic().breaker;
  const auto [caught, change] = breaker.failed(std::chrono::steady_clock::now(), failure.why);
  failure.caught = caught;
  if (change != HandlerBreaker::Change::opened) return;
  const TopicPlan& plan = unit.plan();
  unit.services().run_log->warn(
      Code::breaker_open, unit.place().at,
      "the circuit breaker of topic " + plan.topic + " is open (" + breaker.why() + "): no handler of it starts for " +
          text::duration(plan.breaks.open_for) +
          ", then single messages run as probes. Failures count as no attempt until it is closed");
}

Batch::Batch(std::span<const UnitItem* const> items) {
  if (items.front()->id) ids.reserve(items.size());  // the messages point to them
  messages.reserve(items.size());
  for (const UnitItem* item : items) {
    if (item->id) messages.emplace_back(item->message(), ids.emplace_back(*item->id));
    else messages.push_back(item->message());
    attempt = std::max(attempt, item->attempt());
  }
}

}  // namespace turnstile::detail
