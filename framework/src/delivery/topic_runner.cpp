#include "delivery/topic_runner.hpp"

#include <algorithm>
#include <deque>

#include "delivery/leased_run.hpp"
#include "delivery/plain_run.hpp"
#include "delivery/recorded_trials.hpp"
#include "delivery/shared_transaction.hpp"
#include "delivery/transactional_run.hpp"
#include "delivery/unclaimed_run.hpp"
#include "delivery/unit.hpp"
#include "turnstile/error.hpp"

namespace turnstile::detail {

namespace {

void (*run_of(Mode mode))(Unit&) {
  switch (mode) {
    case Mode::at_least_once: return &PlainRun::run;
    case Mode::transactional:
    case Mode::by_offset:
    case Mode::numbered: return &TransactionalRun::run;
    case Mode::leased: return &LeasedRun::run;
  }
  return nullptr;
}

}  // namespace

TopicRunner::TopicRunner(TopicPlan plan, Pipeline pipeline, HandlerId handler, Services services)
    : topic_(std::move(plan), std::move(pipeline), std::move(handler), std::move(services)),
      run_(run_of(topic_.plan.mode)) {
  for (const auto& observer : topic_.pipeline.observers) topic_.services.observers.add(observer);
}

namespace {

/// Whether some of these messages may have killed a process.
bool are_suspicious(std::span<const Work> works, const OwnedPartition& place) {
  return place.suspicion && std::any_of(works.begin(), works.end(), [&](const Work& work) {
           return place.suspicion->covers(work.message->offset());
         });
}

}  // namespace

UnitResult TopicRunner::run(std::span<const Work> works, const OwnedPartition& place, ports::InboxSession* session,
                            RunState& watch, bool alone) {
  return services().trials && are_suspicious(works, place) ? run_recorded(works, place, session, watch, alone)
                                                           : run_mode(works, place, session, watch);
}

/// Records the messages before their handlers run. If this process dies, the next owner then knows which messages ran.
/// If the record fails, no handler starts. Only mode at_least_once continues, because it does not need the store.
UnitResult TopicRunner::run_recorded(std::span<const Work> works, const OwnedPartition& place,
                                     ports::InboxSession* session, RunState& watch, bool alone) {
  std::vector<Offset> offsets, settled;
  for (const Work& work : works) offsets.push_back(work.message->offset());
  UnitResult refused;
  refused.verdicts.resize(works.size());
  try {
    services().trials->begin(*place.guard, offsets, alone);
  } catch (const Fenced& e) {
    refused.end = UnitResult::End::fenced;
    refused.why = e.what();
    if (plan().mode != Mode::at_least_once) return refused;
  } catch (const std::exception& e) {
    refused.end = UnitResult::End::store_unavailable;
    refused.why = e.what();
    if (plan().mode != Mode::at_least_once) return refused;
  }
  UnitResult result = run_mode(works, place, session, watch);
  // Without a fence, a dead letter that killed its process has no row in the table `dead`. The recorded deaths then
  // identify it, so they are kept.
  const auto is_remembered = [&](Offset offset) {
    return !place.fence && place.suspicion->deaths(offset) >= plan().retry.attempts;
  };
  for (std::size_t i = 0; i < works.size(); ++i) {
    if (result.verdicts[i].kind == Verdict::Kind::settled && !is_remembered(offsets[i])) settled.push_back(offsets[i]);
  }
  try {
    services().trials->end(*place.guard, offsets, settled);
  } catch (const std::exception& e) {
    // It is tried again. Until then the messages stay recorded.
    services().run_log->debug(place.at, plan().handler, offsets.front(),
                              std::string("its end could not be recorded: ") + e.what());
  }
  return result;
}

UnitResult TopicRunner::run_mode(std::span<const Work> works, const OwnedPartition& place, ports::InboxSession* session,
                                 RunState& watch) {
  Unit unit(topic_, works, place, session, watch, watch.way());
  run_(unit);
  return unit.finish();
}

std::vector<UnitResult> TopicRunner::run_shared(std::span<const Share> shares, ports::InboxSession* session,
                                                RunState& watch) {
  std::vector<UnitResult> results;
  if (std::any_of(shares.begin(), shares.end(),
                  [](const Share& share) { return are_suspicious(share.works, share.place); })) {
    for (const Share& share : shares) results.push_back(run(share.works, share.place, session, watch));
    return results;
  }
  std::deque<Unit> units;
  std::vector<Unit*> all;
  for (const Share& share : shares) {
    RunState::Way way = watch.way();
    way.received_at = share.received_at;
    all.push_back(&units.emplace_back(topic_, share.works, share.place, session, watch, way));
  }
  detail::run_shared(all);
  for (Unit& unit : units) results.push_back(unit.finish());
  return results;
}

UnitResult TopicRunner::run_unclaimed(std::span<const Work> works, const OwnedPartition& place, RunState& watch) {
  Unit unit(topic_, works, place, nullptr, watch, watch.way());
  UnclaimedRun::run(unit);
  return unit.finish();
}

bool TopicRunner::can_look_up() const noexcept {
  return keeps_ids(plan().mode) && plan().duplicates == DuplicatePolicy::skip && !plan().fingerprint;
}

UnitResult TopicRunner::look_up(std::span<const Work> works, const OwnedPartition& place,
                                ports::InboxSession& session) {
  const auto started = std::chrono::steady_clock::now();
  UnitResult result;
  result.verdicts.resize(works.size());
  result.counts.topic = plan().topic;
  result.counts.partition = place.at.partition;
  result.counts.handler = plan().handler;
  result.counts.messages = static_cast<std::int64_t>(works.size());
  std::vector<MessageId> ids;
  std::vector<std::size_t> whose;
  for (std::size_t i = 0; i < works.size(); ++i) {
    const auto id = plan().id_source.of(*works[i].message, place.incarnation);
    if (const auto* known = std::get_if<MessageId>(&id)) {
      ids.push_back(*known);
      whose.push_back(i);
    }
  }
  try {
    const auto settled = session.settled(handler(), place.fence, ids);
    for (std::size_t k = 0; k < ids.size(); ++k) {
      if (!settled[k]) continue;
      result.verdicts[whose[k]].kind = Verdict::Kind::settled;
      ++result.counts.duplicates;
    }
  } catch (const std::exception& e) {
    result.end = UnitResult::End::store_unavailable;
    result.why = e.what();
  }
  result.counts.took = std::chrono::steady_clock::now() - started;
  return result;
}

}  // namespace turnstile::detail
