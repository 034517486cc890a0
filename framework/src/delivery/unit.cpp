#include "delivery/unit.hpp"

#include <algorithm>
#include <utility>

#include "message/message_id.hpp"

namespace turnstile::detail {

Unit::Unit(Topic& topic, std::span<const Work> works, const OwnedPartition& place, ports::InboxSession* session,
           RunState& watch, const RunState::Way& way)
    : topic_(topic),
      place_(place),
      session_(session),
      watch_(watch),
      items_(works.begin(), works.end()),
      started_(std::chrono::steady_clock::now()) {
  result_.counts.topic = plan().topic;
  result_.counts.partition = place.at.partition;
  result_.counts.handler = plan().handler;
  result_.counts.messages = static_cast<std::int64_t>(works.size());
  trace_ = UnitTrace::of(services().tracer.get(), plan(), place.at.partition, works);
  if (!trace_) return;
  trace_->began(way.received_at.value_or(started_));
  const auto wanted_permit = started_ - way.permit_wait.value_or(std::chrono::nanoseconds(0));
  if (way.received_at)
    trace_->tell(SpanReport::Step::receive, *way.received_at, std::max(*way.received_at, wanted_permit));
  if (way.permit_wait) trace_->tell(SpanReport::Step::wait_for_permit, wanted_permit, started_);
}

ports::InboxScope Unit::scope() const {
  return {.handler = topic_.handler,
          .fence = place_.fence,
          .lock_timeout = services().lock_timeout,
          .idle_timeout = services().idle_timeout,
          .mode = plan().mode,
          .incarnation = place_.incarnation,
          .window = plan().request_window};
}

std::vector<ports::InboxEntry> Unit::entries(const Items& items) const {
  std::vector<ports::InboxEntry> entries;
  entries.reserve(items.size());
  for (const UnitItem* item : items) {
    ports::InboxEntry& entry = entries.emplace_back(ports::InboxEntry{*item->id, item->offset()});
    if (plan().fingerprint) entry.fingerprint = fingerprint(item->message());
    if (plan().mode == Mode::numbered) entry.request = item->request.request;
  }
  return entries;
}

std::string Unit::describe(const Items& items) const {
  const Offset first = items.front()->offset(), last = items.back()->offset();
  return to_string(place_.at) +
         (first == last ? " offset " + std::to_string(first)
                        : " offsets " + std::to_string(first) + " to " + std::to_string(last)) +
         ", handler " + plan().handler;
}

bool Unit::is_blocked(const UnitItem& item) const {
  if (plan().order == Order::none || blocking_.empty()) return false;
  return std::any_of(blocking_.begin(), blocking_.end(), [&](const UnitItem* earlier) {
    if (earlier >= &item) return false;
    return plan().order == Order::partition ||
           (item.message().key() && item.message().key() == earlier->message().key());
  });
}

void Unit::remove_blocked(Items& items) const {
  std::erase_if(items, [&](const UnitItem* item) { return is_blocked(*item); });
}

void Unit::end(UnitResult::End how, const std::string& why) {
  result_.end = how;
  result_.why = why;
}

void Unit::note_successes() {
  const std::int64_t successes = result_.counts.done + result_.counts.skipped + result_.counts.duplicates;
  if (successes > successes_) memory().streaks().went_well(place_);
  successes_ = successes;
}

UnitResult Unit::finish() {
  note_successes();
  result_.verdicts.reserve(items_.size());
  for (const UnitItem& item : items_) result_.verdicts.push_back(item.verdict);
  result_.counts.took = std::chrono::steady_clock::now() - started_;
  services().observers.tell(&Observer::on_batch, result_.counts);
  return std::move(result_);
}

}  // namespace turnstile::detail
