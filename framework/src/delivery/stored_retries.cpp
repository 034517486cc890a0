#include "delivery/stored_retries.hpp"

#include <algorithm>
#include <vector>

#include "delivery/after_failure.hpp"
#include "delivery/backoff.hpp"
#include "message/replay.hpp"
#include "support/failpoint.hpp"

namespace turnstile::detail {

namespace {

using ports::RetryTurn;
using std::chrono::milliseconds;

constexpr const char* kBehind = "an earlier message of its key waits for a retry";

/// The record without what its last sending has added. It keeps its first origin, as a dead letter does.
OwnedMessage record_to_store(const Message& message) {
  OwnedMessage record = message.own();
  const auto first = first_origin(message);
  forget_replay(record);
  if (first && !message.header(kFirstOrigin)) record.headers.push_back({std::string(kFirstOrigin), *first});
  return record;
}

bool is_fresh(const UnitItem& item) { return item.admission == ports::Admission::fresh; }

/// It came back, and its row is the one that the transaction has locked.
bool has_row(const UnitItem& item) {
  return item.back && (item.turn == RetryTurn::runs || item.turn == RetryTurn::behind);
}

/// How often its handler has failed.
int attempts_of(const UnitItem& item) {
  if (item.deferral->delay.count() > 0) return item.attempt();
  return item.back ? item.back->attempts : 0;
}

bool any_back(const Items& items) {
  return std::any_of(items.begin(), items.end(), [](const UnitItem* item) { return item->back.has_value(); });
}

}  // namespace

Items StoredRetries::take_repeats(Items& items) {
  Items repeats;
  if (!any_back(items)) return repeats;
  std::set<MessageId> seen;
  std::erase_if(items, [&](UnitItem* item) {
    if (seen.insert(*item->id).second) return false;
    repeats.push_back(item);
    return true;
  });
  return repeats;
}

void StoredRetries::ask(const Items& items) {
  keys_.clear();
  for (UnitItem* const item : items) {
    item->turn = RetryTurn::runs;
    item->deferral.reset();
  }
  // A record can come back after the topic's setting was changed.
  if (unit_.plan().retry.durable == DurableRetry::off && !any_back(items)) return;
  std::vector<ports::RetryQuestion> questions;
  Items asked;
  for (UnitItem* const item : items) {
    if (!is_fresh(*item) && !item->back) continue;
    asked.push_back(item);
    questions.push_back({*item->id, item->back, waits() ? item->message().key() : std::nullopt});
  }
  if (asked.empty()) return;
  const auto turns = unit_.session().retry_turns(questions);
  for (std::size_t k = 0; k < asked.size(); ++k) {
    asked[k]->turn = turns[k];
    if (turns[k] == RetryTurn::behind) defer(*asked[k], milliseconds(0), kBehind);
  }
}

bool StoredRetries::runs(UnitItem& item) {
  if (item.turn != RetryTurn::runs) return false;
  if (keys_.empty() || !item.message().key() || !keys_.contains(*item.message().key())) return true;
  defer(item, milliseconds(0), kBehind);
  return false;
}

bool StoredRetries::take_out(UnitItem& item, const Failure& failure) {
  if (unit_.plan().retry.durable == DurableRetry::off || failure.kind != Failure::Kind::failed || failure.caught)
    return false;
  const AfterFailure next = after_failure(unit_.plan(), failure, item.attempt(), random_number());
  if (next.dead_letter || !unit_.session().undo_message()) return false;
  defer(item, std::max(next.delay, milliseconds(1)), next.why);
  return true;
}

void StoredRetries::defer(UnitItem& item, milliseconds delay, const std::string& why) {
  item.deferral = UnitItem::Deferral{delay, why};
  if (waits() && item.message().key()) keys_.insert(*item.message().key());
}

bool StoredRetries::need_commit(const Items& items) {
  return std::any_of(items.begin(), items.end(), [](const UnitItem* item) { return has_row(*item); });
}

void StoredRetries::write(const Items& items) {
  ports::RetryChanges changes;
  changes.deferred.reserve(items.size());
  for (UnitItem* const item : items) {
    if (item->deferral) {
      changes.deferred.push_back({.id = *item->id,
                                  .back = has_row(*item) ? item->back : std::nullopt,
                                  .record = record_to_store(item->message()),
                                  .slot = unit_.place().fence->slot,
                                  .incarnation = unit_.place().incarnation,
                                  .attempts = attempts_of(*item),
                                  .delay = item->deferral->delay,
                                  .in_order = waits(),
                                  .error = item->deferral->why});
    } else if (is_fresh(*item) && item->turn != RetryTurn::runs) {
      changes.taken_back.push_back(*item->id);
    } else if (has_row(*item)) {
      changes.settled.push_back(*item->back);
    }
  }
  if (!changes.taken_back.empty() || !changes.deferred.empty() || !changes.settled.empty())
    unit_.session().write_retries(changes);
}

void StoredRetries::ring(const Items& items) {
  if (!unit_.services().bell.stored) return;
  std::optional<milliseconds> after;
  for (const UnitItem* const item : items) {
    if (!item->deferral && !has_row(*item)) continue;
    const milliseconds delay = item->deferral ? item->deferral->delay : milliseconds(0);
    after = std::min(after.value_or(delay), delay);
  }
  if (after) unit_.services().bell.stored(*after);
}

std::optional<Failure> StoredRetries::store(UnitItem& item, milliseconds delay, const std::string& why) {
  const Items one{&item};
  auto failure = guarded([&] {
    item.admission = unit_.session().begin(unit_.scope(), unit_.entries(one)).front();
    ask(one);
    if (is_fresh(item) && item.turn == RetryTurn::runs) defer(item, std::max(delay, milliseconds(1)), why);
    write(one);
    TURNSTILE_FAILPOINT("before-retry-stored");
    unit_.session().commit();
    TURNSTILE_FAILPOINT("after-retry-stored");
  });
  if (!failure) {
    ring(one);
    return std::nullopt;
  }
  unit_.session().rollback();
  // The handler is not to blame: the statements are Turnstile's own.
  if (failure->kind == Failure::Kind::failed) failure->kind = Failure::Kind::busy;
  failure->culprit = nullptr;
  return failure;
}

}  // namespace turnstile::detail
