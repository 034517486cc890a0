#include "delivery/topic_runner.hpp"

#include <algorithm>

#include "delivery/unit_run.hpp"
#include "turnstile/error.hpp"

namespace turnstile {

namespace {

/// Of a message whose handler has begun nobody knows what became of it when its process dies. So it is recorded of each by itself, just
/// before, which costs about a tenth of this; only where handlers take even less is it recorded of several together.
constexpr std::int64_t kBegunTogetherNs = 200'000;
constexpr std::int64_t kMostBegunTogether = 8;
/// Handlers that have to be timed first.
constexpr std::int64_t kTimedFirst = 64;

}  // namespace

TopicRunner::TopicRunner(TopicPlan plan, Pipeline pipeline, HandlerId handler, Services services)
    : plan_(std::move(plan)),
      pipeline_(std::move(pipeline)),
      handler_(handler),
      services_(std::move(services)),
      streaks_(plan_.stop_after_dead) {
  for (const auto& observer : pipeline_.observers) services_.observers.add(observer);
}

UnitResult TopicRunner::run(std::span<const Work> works, const Place& place, InboxSession* session, RunState& watch,
                            bool alone) {
  const bool recorded = place.suspicion && services_.trials &&
                        std::any_of(works.begin(), works.end(),
                                    [&](const Work& work) { return place.suspicion->covers(work.message->offset()); });
  return recorded ? run_recorded(works, place, session, watch, alone) : run_mode(works, place, session, watch);
}

/// The record goes before the handlers: whoever finds it knows what ran. Without it nothing starts, but in mode none, which does without
/// the store.
UnitResult TopicRunner::run_recorded(std::span<const Work> works, const Place& place, InboxSession* session,
                                     RunState& watch, bool alone) {
  std::vector<Offset> offsets, settled;
  for (const Work& work : works) offsets.push_back(work.message->offset());
  UnitResult refused;
  refused.verdicts.resize(works.size());
  try {
    services_.trials->begin(*place.guard, offsets, alone);
  } catch (const Fenced& e) {
    refused.end = UnitResult::End::fenced;
    refused.why = e.what();
    if (plan_.mode != Mode::none) return refused;
  } catch (const std::exception& e) {
    refused.end = UnitResult::End::store_away;
    refused.why = e.what();
    if (plan_.mode != Mode::none) return refused;
  }
  UnitResult result = run_mode(works, place, session, watch);
  // Without a fence there is no row that tells of a killer that was buried: its deaths do, when it is read again.
  const auto is_remembered = [&](Offset offset) {
    return !place.fence && place.suspicion->deaths(offset) >= plan_.retry.attempts;
  };
  for (std::size_t i = 0; i < works.size(); ++i) {
    if (result.verdicts[i].kind == Verdict::Kind::settled && !is_remembered(offsets[i])) settled.push_back(offsets[i]);
  }
  try {
    services_.trials->end(*place.guard, offsets, settled);
  } catch (const std::exception& e) {
    // Whoever comes next runs alone what is settled already, and finds that out.
    services_.run_log->debug(place.at, plan_.handler, offsets.front(),
                             std::string("its end could not be recorded: ") + e.what());
  }
  return result;
}

UnitResult TopicRunner::run_mode(std::span<const Work> works, const Place& place, InboxSession* session,
                                 RunState& watch) {
  UnitRun unit(*this, works, place, session, watch);
  if (plan_.mode == Mode::none) unit.run_plain();
  else if (plan_.mode == Mode::leased) unit.run_leased();
  else unit.run_transactional();
  return unit.finish();
}

UnitResult TopicRunner::run_unclaimed(std::span<const Work> works, const Place& place, RunState& watch) {
  UnitRun unit(*this, works, place, nullptr, watch);
  unit.run_unclaimed();
  return unit.finish();
}

bool TopicRunner::can_look_up() const noexcept {
  return plan_.mode != Mode::none && plan_.mode != Mode::sequence && plan_.duplicates == DuplicatePolicy::skip &&
         !plan_.fingerprint;
}

UnitResult TopicRunner::look_up(std::span<const Work> works, const Place& place, InboxSession& session) {
  const auto started = std::chrono::steady_clock::now();
  UnitResult result;
  result.verdicts.resize(works.size());
  result.counts.topic = plan_.topic;
  result.counts.partition = place.at.partition;
  result.counts.handler = plan_.handler;
  std::vector<MessageId> ids;
  std::vector<std::size_t> whose;
  for (std::size_t i = 0; i < works.size(); ++i) {
    const auto id = plan_.id_source.of(*works[i].message, place.incarnation);
    if (const auto* known = std::get_if<MessageId>(&id)) {
      ids.push_back(*known);
      whose.push_back(i);
    }
  }
  try {
    const auto settled = session.settled(handler_, place.fence, ids);
    for (std::size_t k = 0; k < ids.size(); ++k) {
      if (!settled[k]) continue;
      result.verdicts[whose[k]].kind = Verdict::Kind::settled;
      ++result.counts.duplicates;
    }
  } catch (const std::exception& e) {
    result.end = UnitResult::End::store_away;
    result.why = e.what();
  }
  result.counts.took = std::chrono::steady_clock::now() - started;
  return result;
}

std::size_t TopicRunner::begun_together() const noexcept {
  if (timed_.load(std::memory_order_relaxed) < kTimedFirst) return 1;
  const auto mean = std::max<std::int64_t>(1, mean_handler_ns_.load(std::memory_order_relaxed));
  return static_cast<std::size_t>(std::clamp<std::int64_t>(kBegunTogetherNs / mean, 1, kMostBegunTogether));
}

void TopicRunner::note_handler_time(std::chrono::nanoseconds took) noexcept {
  const auto mean = mean_handler_ns_.load(std::memory_order_relaxed);
  const auto before = timed_.fetch_add(1, std::memory_order_relaxed);
  mean_handler_ns_.store(before == 0 ? took.count() : mean + (took.count() - mean) / 16, std::memory_order_relaxed);
}

std::optional<Death> TopicRunner::pending_death(const Place& place, Offset offset) const {
  if (pending_count_.load(std::memory_order_relaxed) == 0) return std::nullopt;
  const std::lock_guard lock(mutex_);
  const auto it = pending_.find({place.at.partition, offset});
  if (it == pending_.end() || it->second.fence != place.fence) return std::nullopt;
  return it->second.death;
}

void TopicRunner::keep_pending(const Place& place, Offset offset, const Death& death, const std::string& refused) {
  const std::lock_guard lock(mutex_);
  pending_[{place.at.partition, offset}] = {place.fence, death, refused};
  pending_count_ = pending_.size();
}

std::optional<std::string> TopicRunner::why_not_buried(const Place& place, Offset offset) const {
  if (pending_count_.load(std::memory_order_relaxed) == 0) return std::nullopt;
  const std::lock_guard lock(mutex_);
  const auto it = pending_.find({place.at.partition, offset});
  if (it == pending_.end() || it->second.fence != place.fence) return std::nullopt;
  return "the message is dead (" + std::string(to_text(it->second.death.reason)) +
         ") and no dead letter yet: " + it->second.refused;
}

void TopicRunner::drop_pending(const Place& place, Offset offset) {
  if (pending_count_.load(std::memory_order_relaxed) == 0) return;
  const std::lock_guard lock(mutex_);
  pending_.erase({place.at.partition, offset});
  pending_count_ = pending_.size();
}

int TopicRunner::count_busy(const Place& place, Offset offset) {
  const std::lock_guard lock(mutex_);
  const int count = ++busy_[{place.at.partition, offset}];
  busy_count_ = busy_.size();
  return count;
}

void TopicRunner::forget_busy(const Place& place, Offset offset) {
  if (busy_count_.load(std::memory_order_relaxed) == 0) return;
  const std::lock_guard lock(mutex_);
  busy_.erase({place.at.partition, offset});
  busy_count_ = busy_.size();
}

void TopicRunner::note_unrecorded(const MessageId& id) {
  const std::lock_guard lock(mutex_);
  unrecorded_.insert(id);
  unrecorded_count_ = unrecorded_.size();
}

void TopicRunner::drop_unrecorded(const MessageId& id) {
  if (unrecorded_count_.load(std::memory_order_relaxed) == 0) return;
  const std::lock_guard lock(mutex_);
  unrecorded_.erase(id);
  unrecorded_count_ = unrecorded_.size();
}

bool TopicRunner::is_unrecorded(const MessageId& id) const {
  if (unrecorded_count_.load(std::memory_order_relaxed) == 0) return false;
  const std::lock_guard lock(mutex_);
  return unrecorded_.contains(id);
}

}  // namespace turnstile
