#include "delivery/verdicts.hpp"

#include <algorithm>

#include "delivery/after_failure.hpp"
#include "delivery/backoff.hpp"
#include "delivery/reasons.hpp"
#include "delivery/stored_retries.hpp"

namespace turnstile::detail {

namespace {

using std::chrono::milliseconds;

/// A concurrent transaction is short. A message that collided with it runs again after a random delay of up to this
/// time (hazard: blocked-insert, insert-order).
constexpr milliseconds kBusyDelay{20};
/// kBusyDelay doubles with each busy run, up to this time. Locks that are held for seconds therefore cause no dead
/// letter.
constexpr milliseconds kMostBusyDelay{2'000};
constexpr int kMostDoublings = 10;
/// The delay before a message whose handler needs the store runs again, in a topic that continues without the store.
constexpr milliseconds kWithoutStoreDelay{500};
/// The delay between two calls to store a dead letter that was refused.
constexpr milliseconds kRefusedDelay{2'000};
/// The delay for a partition that stopped because of dead letters. It continues when another of its messages succeeds.
/// With order "partition" no other message runs, so the partition stays stopped.
constexpr milliseconds kStoppedDelay{30'000};

std::string text_of(DeadLetters::Kept kept, const TopicPlan& plan) {
  switch (kept) {
    case DeadLetters::Kept::sent: return "dead letter to '" + plan.dead_letter.value_or("") + "'";
    case DeadLetters::Kept::parked: return "parked";
    case DeadLetters::Kept::went_round:
      return "parked, and not sent to '" + plan.dead_letter.value_or("") +
             "': it has been a dead letter 16 times (header turnstile-deaths). Do dead letter topics lead in a circle, "
             "or is it replayed again and again?";
    case DeadLetters::Kept::before: return "failed again: it is a dead letter already, and is not sent a second time";
  }
  return {};
}

}  // namespace

void Verdicts::done(UnitItem& item) {
  item.verdict.kind = Verdict::Kind::settled;
  ++(item.skipped ? unit_.result().counts.skipped : unit_.result().counts.done);
}

void Verdicts::committed(const Items& items) {
  for (UnitItem* const item : items) {
    unit_.memory().forget_busy(unit_.place(), item->offset());
    switch (item->admission) {
      case ports::Admission::fresh: fresh(*item); break;
      case ports::Admission::mismatch: dead_letter(*item, reason_mismatch()); break;
      case ports::Admission::duplicate: duplicate(*item); break;
      case ports::Admission::outside:
      case ports::Admission::no_session: break;  // refused before, so the transaction was rolled back
    }
  }
  log_stored(items);
}

void Verdicts::fresh(UnitItem& item) {
  if (item.deferral) stored(item);
  else if (item.turn != ports::RetryTurn::runs) runs_elsewhere(item);
  else done(item);
}

void Verdicts::duplicate(UnitItem& item) {
  if (unit_.plan().duplicates == DuplicatePolicy::raise) {
    if (!unit_.services().caller_raises) {
      dead_letter(item, {DeadReason::duplicate, "the id was seen before, and this topic raises duplicates", 0});
      return;
    }
    unit_.result().raises = true;
  }
  item.verdict.kind = Verdict::Kind::settled;
  ++unit_.result().counts.duplicates;
}

void Verdicts::failed(UnitItem& item, const Failure& failure) {
  unit_.memory().forget_busy(unit_.place(), item.offset());
  if (failure.caught) return put_back({&item});
  const AfterFailure next = after_failure(unit_.plan(), failure, item.attempt(), random_number());
  if (next.dead_letter) return dead_letter(item, *next.dead_letter);
  if (unit_.plan().retry.durable != DurableRetry::off) return store(item, next.delay, next.why);
  retry(item, next.delay, next.why);
}

void Verdicts::retry(UnitItem& item, milliseconds delay, const std::string& why) {
  item.verdict = {Verdict::Kind::retry, delay, item.work->attempt + 1};
  ++unit_.result().counts.retried;
  unit_.block(item);
  log_retry(item, delay, ": " + why);
  report_retry(item, delay, why);
}

void Verdicts::log_retry(const UnitItem& item, milliseconds delay, const std::string& text) {
  unit_.services().run_log->warn(Code::handler_failed, unit_.place().at, unit_.plan().handler, item.message(),
                                 "attempt " + std::to_string(item.attempt()) + " failed; retrying in " +
                                     std::to_string(delay.count()) + " ms" + text);
}

void Verdicts::report_retry(const UnitItem& item, milliseconds delay, const std::string& why) {
  const TopicPlan& plan = unit_.plan();
  unit_.services().observers.tell(
      &Observer::on_retry,
      MessageReport{plan.topic, unit_.place().at.partition, item.offset(), plan.handler, item.attempt(), why, delay});
}

void Verdicts::store(UnitItem& item, milliseconds delay, const std::string& why) {
  const auto failure = StoredRetries(unit_).store(item, delay, why);
  if (!failure) return committed({&item});
  switch (failure->kind) {  // the handler runs again, as the same attempt
    case Failure::Kind::fenced: unit_.end(UnitResult::End::fenced, failure->why); break;
    case Failure::Kind::unavailable: unit_.end(UnitResult::End::store_unavailable, failure->why); break;
    default: return again_soon({&item}, failure->why);
  }
  unit_.block(item);
}

void Verdicts::stored(UnitItem& item) {
  item.verdict.kind = Verdict::Kind::settled;
  ++unit_.result().counts.deferred;
  if (item.deferral->delay.count() == 0) return;
  ++unit_.result().counts.retried;
  report_retry(item, item.deferral->delay, item.deferral->why);
}

void Verdicts::log_stored(const Items& items) {
  const auto failed = [](const UnitItem* item) {
    return item->verdict.kind == Verdict::Kind::settled && item->deferral && item->deferral->delay.count() > 0;
  };
  const auto end = items.end();
  for (auto first = std::find_if(items.begin(), end, failed); first != end;) {
    const auto& deferral = *(*first)->deferral;
    const auto next = std::find_if(
        first + 1, end, [&](const UnitItem* item) { return !failed(item) || item->deferral->why != deferral.why; });
    const auto more = next - first - 1;
    const std::string others = more == 0 ? ""
                                         : " (and " + std::to_string(more) + " more, up to offset " +
                                               std::to_string((*(next - 1))->offset()) + ")";
    log_retry(**first, deferral.delay, ", stored in PostgreSQL" + others + ": " + deferral.why);
    first = std::find_if(next, end, failed);
  }
}

void Verdicts::runs_elsewhere(UnitItem& item) {
  item.verdict.kind = Verdict::Kind::settled;
  ++unit_.result().counts.duplicates;
  unit_.services().run_log->info(
      unit_.place().at, unit_.plan().handler, item.message(),
      item.turn == ports::RetryTurn::over
          ? "not run: its stored retry is settled, dropped, or was sent again since"
          : "not run: the message is stored for a retry (turnstile retries list), or an operator "
            "dropped it (turnstile dlq list --reason dropped)");
}

void Verdicts::dead_letter(UnitItem& item, const DeadLetter& letter) {
  const auto& services = unit_.services();
  const TopicPlan& plan = unit_.plan();
  const OwnedPartition& place = unit_.place();
  const std::string reason(to_text(letter.reason));
  std::string refused;
  bool counted = false;
  try {
    if (services.dead_letters->possible(plan, place)) {
      // A record that is read again is no news, and does not count.
      auto kept = DeadLetters::Kept::before;
      if (!services.dead_letters->is_kept(item.message(), place, unit_.topic().handler)) {
        if (stops_for(item, letter)) return;
        counted = true;
        kept =
            services.dead_letters->keep(item.message(), item.id, place, plan, unit_.topic().handler, letter, item.back);
      }
      unit_.memory().drop_pending(place, item.message());
      item.verdict.kind = Verdict::Kind::settled;
      ++unit_.result().counts.dead;
      if (kept == DeadLetters::Kept::parked || kept == DeadLetters::Kept::went_round) ++unit_.result().counts.parked;
      services.run_log->warn(Code::dead_lettered, place.at, plan.handler, item.message(),
                             text_of(kept, plan) + " (" + reason + " after " + std::to_string(letter.attempts) +
                                 " attempts): " + letter.error);
      services.observers.tell(
          &Observer::on_dead_letter,
          MessageReport{
              plan.topic, place.at.partition, item.offset(), plan.handler, letter.attempts, letter.error, {}, reason});
      return;
    }
    refused = "there is no place for it; give the topic a dead_letter";
  } catch (const Fenced& e) {  // the partition's next owner runs it
    if (counted) unit_.memory().streaks().take_back(place, letter.reason);
    unit_.end(UnitResult::End::fenced, e.what());
    return unit_.block(item);
  } catch (const StoreUnavailable& e) {
    unit_.result().row_waits = true;
    refused = e.what();
  } catch (const StoreBusy& e) {
    unit_.result().row_waits = true;
    refused = e.what();
  } catch (const std::exception& e) {
    refused = e.what();
  }
  if (counted) unit_.memory().streaks().take_back(place, letter.reason);
  const bool first = !unit_.memory().pending_dead_letter(place, item.message());
  wait_to_dead_letter(item, letter, refused, kRefusedDelay);
  if (first) {
    services.run_log->error(Code::dead_letter_refused, place.at, plan.handler, item.message(),
                            "stopped: the message is dead (" + reason + ": " + letter.error +
                                ") and its dead letter was refused: " + refused +
                                "; the partition continues once the dead letter is accepted");
  }
}

/// Keeps the dead letter until it can be stored. The message waits, and so do the messages behind it.
void Verdicts::wait_to_dead_letter(UnitItem& item, const DeadLetter& letter, const std::string& why,
                                   milliseconds delay) {
  unit_.memory().keep_pending(unit_.place(), item.message(), letter, why);
  wait(item, delay);
  unit_.result().refused = true;
  unit_.result().why = why;
}

/// True: the messages before it became dead letters for the same reason, so the partition stops here.
bool Verdicts::stops_for(UnitItem& item, const DeadLetter& letter) {
  unit_.note_successes();
  const OwnedPartition& place = unit_.place();
  DeadLetterStreaks& streaks = unit_.memory().streaks();
  const auto count = streaks.count(place, letter.reason);
  if (!count) return false;
  const std::string why =
      std::to_string(*count) + " messages in a row became dead letters for the same reason, " +
      std::string(to_text(letter.reason)) +
      ", and no message succeeded between them (stop_after_dead = " + std::to_string(unit_.plan().stop_after_dead) +
      "). What to do: " + remedy_for(letter.reason, unit_.plan(), unit_.services().dead_letters->keeps_rows(place));
  wait_to_dead_letter(item, letter, why, kStoppedDelay);
  unit_.result().stopped = true;
  if (streaks.tell_of(place)) {
    unit_.services().run_log->error(Code::too_many_dead_in_a_row, place.at, unit_.plan().handler, item.message(),
                                    "partition stopped: " + why + ". The last one: " + letter.error);
  }
  return true;
}

void Verdicts::skip_dead(UnitItem& item) {
  item.verdict.kind = Verdict::Kind::settled;
  ++unit_.result().counts.dead;
  unit_.services().run_log->info(unit_.place().at, unit_.plan().handler, item.message(),
                                 "is a dead letter already: not run (turnstile dlq replay runs it)");
}

void Verdicts::pass_over(UnitItem& item, std::string_view handler) {
  item.verdict.kind = Verdict::Kind::settled;
  ++unit_.result().counts.duplicates;
  unit_.services().run_log->info(unit_.place().at, unit_.plan().handler, item.message(),
                                 "passed over: it was published again for handler " + std::string(handler));
}

void Verdicts::again_soon(const Items& items, const std::string& why, int tries) {
  unit_.services().run_log->debug(unit_.place().at, unit_.plan().handler, items.front()->offset(),
                                  "busy, again soon: " + why);
  const auto most = std::min(kBusyDelay * (1 << std::clamp(tries - 1, 0, kMostDoublings)), kMostBusyDelay);
  for (UnitItem* const item : items)
    wait(*item, milliseconds(1 + static_cast<int>(random_number() * static_cast<double>(most.count()))));
}

void Verdicts::taken_in(const Items& items, const std::optional<Failure>& failure) {
  const bool busy = failure && failure->kind == Failure::Kind::busy;
  if (!unit_.memory().note_begin(busy)) return;
  unit_.services().run_log->warn(
      Code::store_busy, unit_.place().at, unit_.plan().handler, items.front()->offset(),
      "PostgreSQL could not take in messages of this topic twice in a row. They wait, and are tried again. This "
      "warning comes at most once a minute: " +
          failure->why);
}

void Verdicts::put_back(const Items& items) {
  for (UnitItem* const item : items) {
    item->verdict = {};
    unit_.block(*item);
  }
}

void Verdicts::wait_for_store(const Items& items) {
  for (UnitItem* const item : items) wait(*item, kWithoutStoreDelay);
}

void Verdicts::wait(UnitItem& item, milliseconds delay) {
  item.verdict = {Verdict::Kind::retry, delay, item.work->attempt};
  unit_.block(item);
}

}  // namespace turnstile::detail
