#include "delivery/transactional_run.hpp"

#include <algorithm>
#include <utility>

#include "delivery/admission.hpp"
#include "delivery/handler_call.hpp"
#include "delivery/timed.hpp"
#include "support/failpoint.hpp"

namespace turnstile::detail {

namespace {

using Kind = Failure::Kind;

/// A message fails if this many of its runs in a row were busy. A run is busy if the database was busy, or ended the
/// connection, during the message's statements or the commit. Waiting does not help a handler that blocks itself with
/// its own locks, or that crashes the server's process. In an outage begin() fails, and that is not counted.
constexpr int kMostBusy = 10;

bool is_lost(ports::Standing standing) {
  return standing == ports::Standing::lost || standing == ports::Standing::lost_unseen;
}

/// A handler may use another store, which throws errors of the same types as Turnstile's store. Such an error leaves
/// Turnstile's transaction sound, and is a failure of the handler. Through libpqxx, a handler gets libpqxx's own
/// exceptions where exec() throws StoreBusy and StoreUnavailable. Then only the standing of the transaction shows the
/// cause.
void judge(Failure& failure, ports::Standing standing, UnitItem* culprit) {
  if (failure.outcome) return;
  if (standing == ports::Standing::sound || failure.kind == Kind::fenced) {
    failure.kind = Kind::failed;
    failure.culprit = culprit;
  }
  if (failure.kind == Kind::failed && standing == ports::Standing::busy) failure.kind = Kind::busy;
  if (failure.kind == Kind::failed && standing == ports::Standing::lost) failure.kind = Kind::unavailable;
  failure.by_handler = is_by_handler(failure, standing);
}

}  // namespace

bool is_by_handler(const Failure& failure, ports::Standing standing) {
  return failure.kind == Kind::busy || (failure.kind == Kind::unavailable && is_lost(standing));
}

void TransactionalRun::run(Unit& unit) {
  TransactionalRun transactional(unit);
  transactional.run_apart(transactional.admit());
}

Items TransactionalRun::admit() { return detail::admit(unit_, verdicts_); }

/// If a message brings the store down, what follows it in its unit cannot run. So its last failure in a transaction with
/// others cannot isolate it: it is alone from its next unit on.
void TransactionalRun::run_apart(Items items) {
  const auto is_full = [&](const Items& part) { return part.size() >= unit_.plan().batch; };
  parts_.assign(1, {});
  for (UnitItem* const item : items) {
    const bool alone = must_run_alone(*item);
    if (alone || is_full(parts_.back())) parts_.emplace_back();
    parts_.back().push_back(item);
    if (alone) parts_.emplace_back();
  }
  std::erase_if(parts_, [](const Items& part) { return part.empty(); });
  since_ = std::chrono::steady_clock::now();
  struct Ended {  // what was announced does not stay open, whatever comes
    ports::InboxSession& session;
    ~Ended() { session.rollback(); }
  } const ended{session()};
  run_isolating(unit_, verdicts_, parts_, [this](const Items& some) {
    return may_go_on(some) ? attempt(some) : std::optional(Failure{.kind = Kind::cancelled});
  });
}

/// A rebalance or a pause may have begun since the unit was handed out, or the log may have been cut off.
bool TransactionalRun::may_go_on(const Items& items) const {
  if (is_late(items)) return false;
  if (items == parts_.front()) return true;
  const auto& all = unit_.items();
  const auto first = std::find_if(all.begin(), all.end(),
                                  [](const UnitItem& item) { return item.verdict.kind != Verdict::Kind::settled; });
  return unit_.watch().may_go_on(static_cast<std::size_t>(first - all.begin()));
}

/// The handlers were quick when the unit was made, and may have become slow: a rebalance, the end of the process and the
/// results of the messages before would wait for all of them.
bool TransactionalRun::is_late(const Items& items) const {
  return items != parts_.front() && std::find(parts_.begin(), parts_.end(), items) != parts_.end() &&
         std::chrono::steady_clock::now() - since_ > kUnitTime;
}

/// A single message: more of them share a transaction to save round trips. What comes next must not depend on how this
/// transaction ends, as with stored retries, nor wait for a dead letter of it.
void TransactionalRun::announce_next(const Items& items) {
  const auto part = std::find(parts_.begin(), parts_.end(), items);
  if (part == parts_.end() || part + 1 == parts_.end() || (part + 1)->size() != 1) return;
  const Items& next = *(part + 1);
  if (next.front()->back || unit_.is_over() || is_late(next)) return;
  const bool skips = unit_.plan().duplicates == DuplicatePolicy::skip;
  const bool is_certain = std::all_of(items.begin(), items.end(), [&](const UnitItem* item) {
    const bool ends_well =
        item->admission == ports::Admission::fresh || (skips && item->admission == ports::Admission::duplicate);
    return ends_well && !item->back && !item->deferral;
  });
  if (is_certain) session().announce(unit_.scope(), unit_.entries(next));
}

bool TransactionalRun::must_run_alone(const UnitItem& item) const {
  return unit_.memory().busy_tries(unit_.place(), item.offset()) >= kMostBusy;
}

void TransactionalRun::prepare(const Items& items) {
  for (UnitItem* const item : items) item->skipped = item->replied = false;
  published_ = handled_ = 0;
  overdue_ = nullptr;
  must_commit_ = false;
}

std::optional<Failure> TransactionalRun::attempt(Items items) {
  // An earlier call may have committed some of them.
  std::erase_if(items, [](const UnitItem* item) { return item->verdict.kind == Verdict::Kind::settled; });
  if (items.empty()) return std::nullopt;
  Items repeats = StoredRetries::take_repeats(items);
  prepare(items);
  auto failure = transact(items);
  if (!failure) {
    verdicts_.committed(items);
    return repeats.empty() ? std::nullopt : attempt(std::move(repeats));
  }
  session().rollback();
  // The server may end a transaction that was open for too long. The next statement detects that, even if it is a
  // statement of another message.
  if (failure->kind == Kind::failed && !failure->dead_letter && overdue_ != nullptr) failure->culprit = overdue_;
  failure->handled = handled_;
  return failure->by_handler ? count_busy(items, std::move(*failure)) : std::move(failure);
}

std::optional<Failure> TransactionalRun::transact(const Items& items) {
  if (auto failure = begin(items)) return failure;
  if (auto failure = run_in({items}, items)) return failure;
  if (must_commit_) return commit(items);
  announce_next(items);
  session().rollback();
  return std::nullopt;
}

std::optional<Failure> TransactionalRun::run_in(const Place& place, const Items& items) {
  TURNSTILE_FAILPOINT("after-claim");
  fresh_ = fresh_of(items);
  // First: a record that comes back for a retry has a new time, and no longer shows whether it is too old.
  if (auto failure = first_refused(unit_, items, fresh_)) return failure;
  if (auto failure = guarded(place.all, nullptr, [&] { retries_.ask(items); })) {
    // It has sent what the handlers of other units have queued.
    if (place.first > 0) failure->by_handler = is_by_handler(*failure, session().standing());
    return failure;
  }
  const bool answers = unit_.plan().duplicates == DuplicatePolicy::replay && fresh_.size() < items.size();
  must_commit_ = !fresh_.empty() || answers || StoredRetries::need_commit(items);
  if (!fresh_.empty()) {
    if (auto failure = run_handlers(place, items)) return failure;
  }
  if (!answers) return std::nullopt;
  return guarded(place.all, nullptr, [&] { published_ += answer_duplicates(unit_, items, place.first); });
}

std::optional<Failure> TransactionalRun::begin(const Items& items) {
  const Timed timed(unit_.result().counts.claim_time);
  UnitTrace::Span span(unit_.trace(), SpanReport::Step::claim);
  auto failure = guarded([&] {
    const auto admissions = session().begin(unit_.scope(), unit_.entries(items));
    for (std::size_t k = 0; k < items.size(); ++k) items[k]->admission = admissions[k];
  });
  if (failure) span.failed(failure->why);
  verdicts_.taken_in(items, failure);
  return failure;
}

std::optional<Failure> TransactionalRun::run_handlers(const Place& place, const Items& items) {
  const Timed timed(unit_.result().counts.handler_time);
  return unit_.topic().pipeline.one_at_a_time ? run_one_by_one(place, items) : run_as_batch(place, items);
}

std::optional<Failure> TransactionalRun::run_one_by_one(const Place& place, const Items& items) {
  for (std::size_t k = 0; k < items.size(); ++k) {
    UnitItem& item = *items[k];
    if (item.admission != ports::Admission::fresh || !retries_.runs(item)) continue;
    // Reads the clock: if the process was suspended during the unit, the engine may not have cancelled the unit yet.
    if (unit_.is_over()) return Failure{.kind = Kind::cancelled};
    session().at_message(place.first + k);
    TransactionOutgoing outgoing(unit_, {&items[k], 1}, &item);
    const Message message(item.message(), *item.id);
    Context context({.tx = &session().transaction(),
                     .outgoing = &outgoing,
                     .stop = unit_.watch().start(item.message()),
                     .attempt = item.attempt(),
                     .fence = unit_.place().fence,
                     .message_id = item.id,
                     .ids = {&*item.id, 1},
                     .handler = unit_.plan().handler,
                     .message = &message,
                     .trace = unit_.begin_trace(item)});
    ++handled_;
    const auto began = std::chrono::steady_clock::now();
    HandlerCall called = call_handler(unit_, {&message, 1}, context, place.all, &item);
    if (overdue_ == nullptr && std::chrono::steady_clock::now() - began >= unit_.plan().handler_timeout)
      overdue_ = &item;
    item.skipped = called.skipped;
    if (called.failure) {
      judge(*called.failure, session().standing(), &item);
      if (called.failure->kind == Kind::failed) count_failure(unit_, *called.failure);
      if (retries_.take_out(item, *called.failure)) continue;
      return std::move(called.failure);
    }
    published_ += outgoing.published();
    TURNSTILE_FAILPOINT("after-handler");
  }
  return std::nullopt;
}

std::optional<Failure> TransactionalRun::run_as_batch(const Place& place, const Items& items) {
  if (unit_.watch().is_over()) return Failure{.kind = Kind::cancelled};
  Items fresh = fresh_;
  std::erase_if(fresh, [&](UnitItem* item) { return !retries_.runs(*item); });
  if (fresh.empty()) return std::nullopt;
  const Batch batch(fresh);
  session().at_message(place.first +
                       static_cast<std::size_t>(std::find(items.begin(), items.end(), fresh.front()) - items.begin()));
  TransactionOutgoing outgoing(unit_, fresh, nullptr);
  Context context({.tx = &session().transaction(),
                   .outgoing = &outgoing,
                   .stop = unit_.watch().start(batch.messages.front()),
                   .attempt = batch.attempt,
                   .fence = unit_.place().fence,
                   .ids = batch.ids,
                   .handler = unit_.plan().handler,
                   .mode = unit_.plan().mode});
  handled_ = fresh.size();
  HandlerCall called = call_handler(unit_, batch.messages, context, place.all, nullptr);
  for (UnitItem* const item : fresh) item->skipped = called.skipped;
  published_ += outgoing.published();
  TURNSTILE_FAILPOINT("after-handler");
  if (called.failure) {
    judge(*called.failure, session().standing(), nullptr);
    if (called.failure->kind == Kind::failed) count_failure(unit_, *called.failure);
    called.failure->culprit = nullptr;  // a deferred statement's error names a message, but it concerns the batch
  }
  return std::move(called.failure);
}

std::optional<Failure> TransactionalRun::why_no_commit(const Items& items) {
  TURNSTILE_FAILPOINT("before-commit");
  if (unit_.watch().permit_is_lost()) {
    unit_.services().run_log->warn(
        Code::permits_lost, unit_.place().at, unit_.plan().handler, items.front()->offset(),
        "Rolled back: the lease of this handler's permit ended while it ran, so another handler may have run at the same "
        "time, above the limit. The messages run again");
    return Failure{.kind = Kind::cancelled};
  }
  // A handler may continue after its permit or its partition was lost. Its effects in this transaction are rolled back.
  if (unit_.watch().cancelled()) return Failure{.kind = Kind::cancelled};
  return std::nullopt;
}

std::optional<Failure> TransactionalRun::commit(const Items& items) {
  if (auto failure = why_no_commit(items)) return failure;
  std::optional<std::string> in_doubt;
  auto failure = guarded(items, nullptr, [&] {
    const Timed timed(unit_.result().counts.commit_time);
    write_retries(items);
    UnitTrace::Span span(unit_.trace(), SpanReport::Step::commit);
    announce_next(items);
    try {
      session().commit();
    } catch (const CommitInDoubt& e) {
      in_doubt = e.what();
      span.failed(*in_doubt);
    }
  });
  if (in_doubt) return decide_doubt(items, *in_doubt);
  if (failure) failure->by_handler = is_by_handler(*failure, session().standing());
  ring(items, !failure);
  TURNSTILE_FAILPOINT("after-commit");
  return failure;
}

void TransactionalRun::ring(const Items& items, bool committed) {
  if (published_ > 0 && unit_.services().bell.published) unit_.services().bell.published();
  if (committed) retries_.ring(items);
}

/// What the inbox can show of the item after a commit in doubt.
TransactionalRun::Evidence TransactionalRun::evidence_of(const UnitItem& item) const {
  if (item.back || item.deferral || item.turn != ports::RetryTurn::runs) return Evidence::none;
  if (item.admission == ports::Admission::fresh) return Evidence::id;
  // An answer that is sent twice has the same id.
  return unit_.plan().duplicates == DuplicatePolicy::replay ? Evidence::none : Evidence::not_needed;
}

/// The answer to COMMIT was lost (hazard: commit-in-doubt). A message whose id is in the inbox has taken effect: here, or
/// as a copy in another partition. If an id is absent, the messages run again. If a transaction that is still in flight
/// commits after all, the inbox then finds duplicates.
std::optional<Failure> TransactionalRun::decide_doubt(const Items& items, const std::string& why) {
  const auto& run_log = *unit_.services().run_log;
  run_log.warn(Code::commit_in_doubt, unit_.place().at, unit_.plan().handler, items.front()->offset(),
               "Commit in doubt: the answer to COMMIT was lost. Looking up whether it was committed: " + why);
  // The next run gets a certain answer: it waits for the row that the transaction in doubt may still lock.
  const Failure lost{.kind = Kind::busy, .why = why, .by_handler = true};
  if (numbers_records(unit_.plan().mode)) return lost;
  std::vector<MessageId> ids;
  for (const UnitItem* item : items) {
    switch (evidence_of(*item)) {
      case Evidence::id: ids.push_back(*item->id); break;
      case Evidence::not_needed: break;
      case Evidence::none: return lost;  // although the others have ids: these may be of copies
    }
  }
  bool all = false;
  if (auto failure = guarded([&] {
        const auto settled = session().settled(unit_.topic().handler, unit_.place().fence, ids);
        all = std::all_of(settled.begin(), settled.end(), [](bool there) { return there; });
      })) {
    failure->by_handler = true;  // the COMMIT may have brought the store down
    return failure;
  }
  run_log.info(unit_.place().at, unit_.plan().handler, items.front()->offset(),
               all ? "commit in doubt: it was committed" : "commit in doubt: it was not committed; running it again");
  return all ? std::nullopt : std::optional(lost);
}

int TransactionalRun::count_tries(const Items& items) {
  int most = 0;
  for (const UnitItem* item : items) most = std::max(most, unit_.memory().count_busy(unit_.place(), item->offset()));
  return most;
}

/// Counts that the handler's statements or the commit were busy, or lost their connection. The kMostBusy-th time in a
/// row is a failure.
Failure TransactionalRun::count_busy(const Items& items, Failure failure) {
  failure.busy_tries = count_tries(failure.culprit != nullptr ? Items{failure.culprit} : items);
  if (failure.busy_tries >= kMostBusy) {
    return {
        .culprit = failure.culprit,
        .why =
            "PostgreSQL was busy (a lock that was not free in time, a deadlock or a serialization failure, see the SQLSTATE), or "
            "ended the connection, " +
            std::to_string(failure.busy_tries) +
            " times in a row while the handler's statements ran, which counts as one attempt: " + failure.why,
        .handled = failure.handled};
  }
  // If the store answers, there is no outage, and only this message waits.
  if (failure.kind == Kind::unavailable && store_answers()) {
    unit_.services().run_log->warn(
        Code::store_busy, unit_.place().at, unit_.plan().handler, items.front()->offset(),
        "The connection to PostgreSQL was lost while a statement of the handler ran. PostgreSQL answers, and the handler "
        "runs again: " +
            failure.why);
    failure.kind = Kind::busy;
  }
  return failure;
}

bool TransactionalRun::store_answers() const {
  try {
    static_cast<void>(unit_.services().store->history());
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

}  // namespace turnstile::detail
