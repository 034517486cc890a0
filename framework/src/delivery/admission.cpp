#include "delivery/admission.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "delivery/reasons.hpp"
#include "message/replay.hpp"
#include "turnstile/replay.hpp"

namespace turnstile::detail {

namespace {

std::variant<MessageId, MissingId> id_of(const Unit& unit, UnitItem& item) {
  if (unit.plan().mode != Mode::numbered) return unit.plan().id_source.of(item.message(), unit.place().incarnation);
  auto stamped = request_of(item.message());
  if (auto* missing = std::get_if<MissingId>(&stamped)) return std::move(*missing);
  item.request = std::get<StampedRequest>(stamped);
  return message_id(item.request.request);
}

}  // namespace

bool pass_over_others(UnitItem& item, Unit& unit, Verdicts& verdicts) {
  if (!replayed_for(item.message())) return false;
  const TopicPlan& plan = unit.plan();
  if (const auto whom = replayed_for_another(item.message(), plan.handler, plan.group)) {
    verdicts.pass_over(item, *whom);
    return true;
  }
  if (plan.mode == Mode::transactional) item.back = retry_of(item.message());
  return false;
}

namespace {

/// Computes the ids of the items. Returns the items that have an id and are not dead letters.
Items identify(Unit& unit, Verdicts& verdicts) {
  Items todo;
  todo.reserve(unit.items().size());
  std::vector<std::pair<UnitItem*, DeadLetter>> dead;
  for (UnitItem& item : unit.items()) {
    const auto replay = item.message().find(kReplayedFor);
    if (replay.unreadable) {
      dead.emplace_back(&item, reason_unreadable());
      continue;
    }
    if (replay.value && pass_over_others(item, unit, verdicts)) continue;
    auto id = id_of(unit, item);
    if (const auto* missing = std::get_if<MissingId>(&id)) {
      dead.emplace_back(&item, DeadLetter{DeadReason::missing_id, missing->why, 0});
      continue;
    }
    item.id = std::get<MessageId>(id);
    if (unit.place().is_dead(item.offset())) verdicts.skip_dead(item);
    else if (auto letter = unit.memory().pending_dead_letter(unit.place(), item.message()))
      dead.emplace_back(&item, std::move(*letter));
    else todo.push_back(&item);
  }
  UnitItem* next = unit.items().data();
  for (const auto& [item, letter] : dead) {
    if (item > next) unit.memory().streaks().went_well(unit.place());  // the messages in between have ids
    next = item + 1;
    if (!unit.is_blocked(*item)) verdicts.dead_letter(*item, letter);
  }
  return todo;
}

/// Mode numbered: dead-letters the messages whose session is unknown, and those that another program numbered. False:
/// the store is unavailable, and the unit has ended.
bool verify_producers(Unit& unit, Verdicts& verdicts, Items& items) {
  const auto producer_of = [](const UnitItem* item) { return item->request.request.producer; };
  std::set<MessageId> producers;
  for (const UnitItem* item : items) producers.insert(producer_of(item));
  std::map<MessageId, std::string> secrets;
  const auto has_session = [&](const UnitItem* item) { return secrets.contains(producer_of(item)); };
  const auto is_proved = [&](const UnitItem* item) {
    return item->request.is_proved(unit.plan().topic, secrets.at(producer_of(item)));
  };
  std::set<const UnitItem*> forged;
  const auto failure = guarded([&] {
    ProducerSecrets& known = *unit.services().producers;
    secrets = known.secrets(producers);
    std::set<MessageId> doubted;
    for (const UnitItem* item : items) {
      if (!has_session(item) || is_proved(item)) continue;
      forged.insert(item);
      doubted.insert(producer_of(item));
    }
    if (doubted.empty()) return;
    for (const MessageId& id : doubted) secrets.erase(id);
    secrets.merge(known.secrets(doubted, true));
    std::erase_if(forged, [&](const UnitItem* item) { return !has_session(item) || is_proved(item); });
  });
  if (failure) {
    unit.end(UnitResult::End::store_unavailable, failure->why);
    return false;
  }
  std::erase_if(items, [&](UnitItem* item) {
    if (!has_session(item)) verdicts.dead_letter(*item, reason_no_session(unit, *item));
    else if (forged.contains(item)) verdicts.dead_letter(*item, reason_forged(unit, *item));
    else return false;
    return true;
  });
  return true;
}

Failure refused(UnitItem* item, DeadLetter letter) { return {.culprit = item, .dead_letter = std::move(letter)}; }

}  // namespace

Items admit(Unit& unit, Verdicts& verdicts) {
  Items items = identify(unit, verdicts);
  if (unit.plan().mode == Mode::numbered && !verify_producers(unit, verdicts, items)) return {};
  return items;
}

Items fresh_of(const Items& items) {
  Items fresh;
  fresh.reserve(items.size());
  std::copy_if(items.begin(), items.end(), std::back_inserter(fresh),
               [](const UnitItem* item) { return item->admission == ports::Admission::fresh; });
  return fresh;
}

bool is_killer(const Unit& unit, const UnitItem& item) {
  const auto& suspicion = unit.place().suspicion;
  return suspicion && suspicion->deaths(item.offset()) >= unit.plan().retry.attempts;
}

UnitItem* first_too_old(const Unit& unit, const Items& items) {
  const auto& retention = unit.services().retention;
  if (!retention || unit.plan().too_old == HorizonPolicy::run) return nullptr;
  const Timestamp line = retention->horizon_estimate();
  bool asked = false;
  for (UnitItem* const item : items) {
    const Timestamp time = item->message().timestamp();
    if (time == Timestamp{} || time >= line) continue;  // the first: the message has no timestamp
    if (!asked) retention->declare(unit.services().store->retention());
    asked = true;
    if (time < retention->all_since()) return item;
  }
  return nullptr;
}

std::optional<Failure> first_refused(const Unit& unit, const Items& items, const Items& fresh) {
  UnitItem* old = nullptr;
  if (auto failure = guarded([&] { old = first_too_old(unit, fresh); })) return failure;
  for (UnitItem* const item : fresh) {
    if (is_killer(unit, *item)) return refused(item, reason_killed(unit, *item));
  }
  for (UnitItem* const item : items) {
    if (item == old) return refused(item, reason_too_old(unit, *item));
    if (item->admission == ports::Admission::outside) return refused(item, reason_outside_window(unit, *item));
    if (item->admission == ports::Admission::no_session) return refused(item, reason_no_session(unit, *item));
  }
  return std::nullopt;
}

}  // namespace turnstile::detail
