#include "delivery/plain_run.hpp"

#include "delivery/admission.hpp"
#include "delivery/reasons.hpp"
#include "delivery/timed.hpp"
#include "support/failpoint.hpp"
#include "turnstile/replay.hpp"

namespace turnstile::detail {

void PlainRun::run(Unit& unit) {
  PlainRun plain(unit);
  Items todo;
  todo.reserve(unit.items().size());
  for (UnitItem& item : unit.items()) {
    const auto replay = item.message().find(kReplayedFor);
    if (replay.unreadable) {
      if (!unit.is_blocked(item)) plain.verdicts_.dead_letter(item, reason_unreadable());
    } else if (!replay.value || !pass_over_others(item, unit, plain.verdicts_)) todo.push_back(&item);
  }
  plain.run_items(todo);
}

void PlainRun::run_items(const Items& items) {
  if (!unit_.plan().fingerprint && !unit_.topic().pipeline.one_at_a_time)
    return run_isolating(unit_, verdicts_, {items}, [this](const Items& piece) { return run_together(piece); });
  // One measurement for all: reading the clock twice for each message would cost more than a short handler.
  const Timed timed(unit_.result().counts.handler_time);
  for (UnitItem* const item : items) {
    if (unit_.is_over()) return;
    if (!unit_.is_blocked(*item)) run_alone(*item);
  }
}

void PlainRun::run_alone(UnitItem& item) {
  if (const auto letter = unit_.memory().pending_dead_letter(unit_.place(), item.message()))
    return verdicts_.dead_letter(item, *letter);
  if (is_killer(unit_, item)) return verdicts_.dead_letter(item, reason_killed(unit_, item));
  HandlerCall called = [&] {
    if (!item.id) return call({item.work->message, 1}, {}, item.work->attempt, &item);
    const Message message(item.message(), *item.id);
    return call({&message, 1}, {&*item.id, 1}, item.work->attempt, &item);
  }();
  if (!called.failure) {
    item.skipped = called.skipped;
    verdicts_.done(item);
  } else if (!excuses(*called.failure, {&item})) {
    count_failure(unit_, *called.failure);
    verdicts_.failed(item, *called.failure);
  }
}

std::optional<Failure> PlainRun::run_together(const Items& items) {
  if (is_killer(unit_, *items.front())) return Failure{.dead_letter = reason_killed(unit_, *items.front())};
  const Batch batch(items);
  HandlerCall called = [&] {
    const Timed timed(unit_.result().counts.handler_time);
    return call(batch.messages, batch.ids, batch.attempt, nullptr);
  }();
  TURNSTILE_FAILPOINT("after-handler");
  if (!called.failure) {
    for (UnitItem* const item : items) {
      item->skipped = called.skipped;
      verdicts_.done(*item);
    }
    return std::nullopt;
  }
  if (excuses(*called.failure, items)) return std::nullopt;
  count_failure(unit_, *called.failure);
  // Without a transaction, every error is a failure of the handler, also an error of a store.
  called.failure->kind = Failure::Kind::failed;
  called.failure->culprit = nullptr;
  called.failure->handled = items.size();
  return std::move(called.failure);
}

HandlerCall PlainRun::call(std::span<const Message> messages, std::span<const MessageId> ids, int attempt,
                           UnitItem* alone) {
  Context::Fields given = fields(alone);
  given.ids = ids;
  given.stop = unit_.watch().start(messages.front());
  given.attempt = attempt;
  if (alone != nullptr) {
    given.message = &messages.front();
    given.trace = unit_.begin_trace(*alone);
  }
  Context context(std::move(given));
  return call_handler(unit_, messages, context, {}, alone);
}

Context::Fields PlainRun::fields(const UnitItem*) {
  return {.fence = unit_.place().fence, .handler = unit_.plan().handler, .mode = unit_.plan().mode};
}

bool PlainRun::excuses(const Failure&, const Items&) { return false; }

}  // namespace turnstile::detail
