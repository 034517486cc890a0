#include "delivery/leased_run.hpp"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "delivery/admission.hpp"
#include "delivery/handler_call.hpp"
#include "delivery/isolation.hpp"
#include "delivery/reasons.hpp"
#include "message/message_id.hpp"
#include "support/failpoint.hpp"
#include "turnstile/shell.hpp"

namespace turnstile::detail {

namespace {

using std::chrono::milliseconds;

/// The longest wait before a message is looked at again while its duplicate runs. The duplicate may end long before its
/// lease.
constexpr milliseconds kLookAgain{500};

}  // namespace

void LeasedRun::run(Unit& unit) {
  LeasedRun leased(unit);
  const Items todo = admit(unit, leased.verdicts_);
  if (todo.empty() || unit.watch().is_over()) return;
  if (!leased.claimed_.claim(todo)) return;
  TURNSTILE_FAILPOINT("after-claim");
  leased.run_claimed(todo);
  leased.claimed_.record();
  leased.settle_repeats();
  leased.claimed_.release();
  if (!leased.duplicates_.empty()) leased.answer_again();
}

void LeasedRun::run_claimed(const Items& items) {
  Items together;
  for (std::size_t k = 0; k < items.size(); ++k) {
    UnitItem& item = *items[k];
    const bool is_claimed = item.claim.state == ports::Claim::State::claimed;
    if (claimed_.is_over() || unit_.is_over() || unit_.is_blocked(item)) {
      if (is_claimed) claimed_.give_back(item);
    } else if (!is_claimed) {
      not_claimed(item);
    } else if (!may_run(item)) {
      continue;
    } else if (!unit_.topic().pipeline.one_at_a_time) {
      together.push_back(&item);
    } else if (!claimed_.begin(items, k)) {
      claimed_.give_back(item);
    } else {
      run_handler({&item});
      if (claimed_.is_record_due()) claimed_.record();
    }
  }
  if (!together.empty()) run_handler(together);
}

bool LeasedRun::may_run(UnitItem& item) {
  if (is_killer(unit_, item)) {
    claimed_.give_back(item);
    verdicts_.dead_letter(item, reason_killed(unit_, item));
    return false;
  }
  bool is_old = false;
  const auto failure = guarded([&] { is_old = first_too_old(unit_, {&item}) != nullptr; });
  if (!failure && !is_old) return true;
  claimed_.give_back(item);
  if (is_old) verdicts_.dead_letter(item, reason_too_old(unit_, item));
  else verdicts_.again_soon({&item}, "whether its id may have been forgotten could not be asked");
  return false;
}

void LeasedRun::run_handler(const Items& items) {
  if (claimed_.is_over()) {
    for (UnitItem* const item : items) claimed_.give_back(*item);
    return;
  }
  UnitItem* const alone = items.size() == 1 ? items.front() : nullptr;
  for (UnitItem* const item : items) item->replied = false;
  const Batch batch(items);
  BufferedOutgoing outgoing(unit_, items);
  Context context(
      {.outgoing = &outgoing,
       .stop = unit_.watch().start(batch.messages.front()),
       .attempt = batch.attempt,
       .fence = unit_.place().fence,
       .message_id = alone != nullptr ? std::optional(effect_key(unit_.plan().handler, *alone->id)) : std::nullopt,
       .ids = batch.ids,
       .handler = unit_.plan().handler,
       .mode = Mode::leased,
       .claim_fence = alone != nullptr ? alone->claim.fence : 0,
       .message = alone != nullptr ? &batch.messages.front() : nullptr,
       .trace = alone != nullptr ? unit_.begin_trace(*alone) : nullptr});
  const auto began = std::chrono::steady_clock::now();
  HandlerCall called = call_handler(unit_, batch.messages, context, {}, nullptr);
  const auto took = std::chrono::steady_clock::now() - began;
  unit_.result().counts.handler_time += took;
  if (alone != nullptr) unit_.memory().note_handler_time(took);
  TURNSTILE_FAILPOINT("after-handler");
  if (!called.failure) {
    for (std::size_t k = 0; k < items.size(); ++k) {
      items[k]->skipped = called.skipped;
      claimed_.done(*items[k], outgoing.take(k));
    }
    return;
  }
  count_failure(unit_, *called.failure);
  if (alone != nullptr) {
    claimed_.failed(*alone, called.failure->why);
    verdicts_.failed(*alone, *called.failure);
  } else if (called.failure->caught) {
    for (UnitItem* const item : items) claimed_.failed(*item, called.failure->why);
    verdicts_.put_back(items);
  } else {
    run_halves(items);
  }
}

/// The items ran together and failed. Halves isolate the item that is to blame. Items that run again are still claimed.
void LeasedRun::run_halves(const Items& items) {
  unit_.result().counts.rerun += static_cast<std::int64_t>(items.size()) - 1;
  for (const Items& half : split(items, nullptr)) {
    Items left;
    for (UnitItem* const item : half) {
      if (claimed_.is_over() || unit_.is_over() || unit_.is_blocked(*item)) claimed_.give_back(*item);
      else left.push_back(item);
    }
    if (!left.empty()) run_handler(left);
  }
}

void LeasedRun::not_claimed(UnitItem& item) {
  switch (item.claim.state) {
    case ports::Claim::State::claimed: break;
    case ports::Claim::State::done:
      unit_.memory().drop_unrecorded(*item.id);
      settle_duplicate(item);
      break;
    case ports::Claim::State::mismatch: verdicts_.dead_letter(item, reason_mismatch()); break;
    case ports::Claim::State::parked:
      verdicts_.dead_letter(
          item,
          {DeadReason::unknown,
           std::string(
               is_in_doubt(unit_, item)
                   ? "Kafka's offset of the group is past it, and the database has no record of it: the database went back to an "
                     "earlier time, or somebody moved that offset forward"
                   : "its lease ended while it was claimed") +
               ": whether it took effect is not known; look, and then: turnstile inbox unpark " + item.id->text() +
               " " + text::shell_option("--handler", unit_.plan().handler, "NAME") + " --done | --rerun",
           item.work->attempt});
      unit_.memory().drop_unrecorded(*item.id);
      break;
    case ports::Claim::State::repeated: repeats_.push_back(&item); break;
    case ports::Claim::State::running: other_is_running(item); break;
  }
}

/// The policy while_running applies only to copies. The claimed record itself always waits: it may fail under its last
/// owner, or this process may have yet to record its result.
void LeasedRun::other_is_running(UnitItem& item) {
  const bool is_copy = item.claim.is_copy && !unit_.services().claims->pending().holds(unit_.topic().handler, *item.id);
  switch (is_copy ? unit_.plan().while_running : RunningPolicy::wait) {
    case RunningPolicy::skip: verdicts_.duplicate(item); break;
    case RunningPolicy::retry: verdicts_.failed(item, {.why = "another one with its id is being handled"}); break;
    case RunningPolicy::wait: verdicts_.wait(item, std::clamp(item.claim.left, milliseconds(20), kLookAgain)); break;
  }
}

void LeasedRun::settle_duplicate(UnitItem& item) {
  verdicts_.duplicate(item);
  if (unit_.plan().duplicates == DuplicatePolicy::replay) duplicates_.push_back(&item);
}

/// An item with the id of an earlier item of its unit is a duplicate once that item is done.
void LeasedRun::settle_repeats() {
  for (UnitItem* const item : repeats_) {
    const auto items = unit_.items();
    const auto first = std::find_if(items.begin(), items.end(), [&](const UnitItem& i) { return i.id == item->id; });
    // With fingerprints, the next claim compares the two bodies.
    if (first->recorded && !unit_.plan().fingerprint) settle_duplicate(*item);
    else if (!unit_.is_blocked(*item)) verdicts_.again_soon({item}, "an earlier message of its batch has the same id");
  }
}

/// Sends the stored responses to the duplicates again.
void LeasedRun::answer_again() {
  if (unit_.plan().reply_topics.empty()) return;
  for (UnitItem* const item : duplicates_) item->admission = ports::Admission::duplicate;
  std::size_t sent = 0;
  const auto failure = guarded([&] {
    unit_.session().begin(unit_.scope(), {});
    sent = answer_duplicates(unit_, duplicates_);
    unit_.session().commit();  // if it is in doubt, all of this is repeated; a reply that is sent twice has the same id
  });
  if (!failure) {
    if (sent > 0 && unit_.services().bell.published) unit_.services().bell.published();
    return;
  }
  unit_.session().rollback();
  unit_.result().counts.duplicates -= duplicates_.size();
  verdicts_.again_soon(duplicates_, failure->why);
}

}  // namespace turnstile::detail
