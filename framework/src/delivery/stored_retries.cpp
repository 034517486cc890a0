#include "delivery/stored_retries.hpp"

#include <algorithm>
#include <utility>

#include "delivery/verdicts.hpp"
#include "message/replay.hpp"
#include "support/failpoint.hpp"

namespace turnstile::detail {

namespace {

/// The record without what its last sending has added. It keeps its first origin, as a dead letter does.
OwnedMessage record_to_store(const Message& message) {
  OwnedMessage record = message.own();
  const auto first = first_origin(message);
  forget_replay(record);
  if (first && !message.header(kFirstOrigin)) record.headers.push_back({std::string(kFirstOrigin), *first});
  return record;
}

}  // namespace

void StoredRetries::ask(const Items& items) {
  held_back_.clear();
  answers_.clear();
  ends_.clear();
  const DurableRetry durable = unit_.plan().retry.durable;
  // A record can come back after the topic's setting was changed.
  const bool any_back = std::any_of(items.begin(), items.end(), [](const UnitItem* item) { return item->back; });
  if (durable == DurableRetry::off && !any_back) return;
  std::vector<ports::RetryQuestion> questions;
  Items asked;
  for (UnitItem* const item : items) {
    if (item->admission != ports::Admission::fresh && !item->back) continue;
    asked.push_back(item);
    const bool waits_for_key = durable == DurableRetry::later_messages_wait && !item->back && item->message().key();
    questions.push_back({*item->id, item->back, waits_for_key ? item->message().key() : std::nullopt});
  }
  if (asked.empty()) return;
  const auto turns = unit_.session().retry_turns(questions);
  for (std::size_t k = 0; k < asked.size(); ++k) {
    const bool fresh = asked[k]->admission == ports::Admission::fresh;
    if (turns[k] != ports::RetryTurn::runs) {
      if (!fresh) continue;  // its id has taken effect
      held_back_.push_back(asked[k]);
      answers_.emplace_back(asked[k], turns[k]);
    } else if (asked[k]->back) {
      ends_.push_back(*asked[k]->back);
    }
  }
}

std::optional<Failure> StoredRetries::settle_held_back() {
  Items behind;
  for (const auto& [item, turn] : std::exchange(answers_, {})) {
    if (turn == ports::RetryTurn::behind) behind.push_back(item);
    else verdicts_.runs_elsewhere(*item, turn == ports::RetryTurn::over);
  }
  held_back_.clear();
  return behind.empty() ? std::nullopt : store(behind, {}, "an earlier message of its key waits for a retry");
}

void StoredRetries::end_all() {
  for (const ports::RetryRef& ref : ends_) unit_.session().end_retry(ref);
}

std::optional<Failure> StoredRetries::defer(UnitItem& item, std::chrono::milliseconds delay, const std::string& error) {
  return store({&item}, delay, error);
}

std::optional<Failure> StoredRetries::store(const Items& items, std::chrono::milliseconds delay,
                                            const std::string& error) {
  const bool failed = delay.count() > 0;
  auto failure = guarded([&] {
    const auto admissions = unit_.session().begin(unit_.scope(), unit_.entries(items));
    for (std::size_t k = 0; k < items.size(); ++k) {
      UnitItem& item = *items[k];
      item.admission = admissions[k];
      if (item.admission != ports::Admission::fresh) continue;
      unit_.session().at_message(k);
      unit_.session().defer_retry({.id = *item.id,
                                   .back = item.back,
                                   .record = record_to_store(item.message()),
                                   .incarnation = unit_.place().incarnation,
                                   .attempts = failed ? item.attempt() : 0,
                                   .delay = delay,
                                   .in_order = unit_.plan().retry.durable == DurableRetry::later_messages_wait,
                                   .error = error});
    }
    TURNSTILE_FAILPOINT("before-retry-stored");
    unit_.session().commit();
    TURNSTILE_FAILPOINT("after-retry-stored");
  });
  if (failure) {
    unit_.session().rollback();
    // The handler is not to blame: the statements are Turnstile's own.
    if (failure->kind == Failure::Kind::failed) failure->kind = Failure::Kind::busy;
    failure->culprit = nullptr;
    return failure;
  }
  for (UnitItem* const item : items) {
    if (item->admission == ports::Admission::fresh) verdicts_.stored(*item, delay, error);
    else verdicts_.committed({item});  // another record with its id took effect meanwhile
  }
  return std::nullopt;
}

}  // namespace turnstile::detail
