#include "engine/worker.hpp"

#include "engine/scheduler.hpp"
#include "support/failpoint.hpp"

namespace turnstile::detail {

namespace {

std::vector<UnitResult> run_shared(const LaneUnit& unit, ports::InboxSession* session, RunState& watch) {
  std::vector<TopicRunner::Share> shares{{unit.works, unit.lane->place, unit.received_at}};
  for (const LaneWork& other : unit.others) shares.push_back({other.works, other.lane->place, other.received_at});
  return unit.lane->topic.runner.run_shared(shares, session, watch);
}

/// Nothing of it was run, or nothing is known of it.
std::vector<UnitResult> failed(const LaneUnit& unit, const std::string& why) {
  std::vector<UnitResult> results(1 + unit.others.size());
  results.front().verdicts.resize(unit.works.size());
  for (std::size_t k = 0; k < unit.others.size(); ++k) results[k + 1].verdicts.resize(unit.others[k].works.size());
  for (UnitResult& result : results) {
    result.end = UnitResult::End::store_unavailable;
    result.why = why;
  }
  return results;
}

}  // namespace

void work(Scheduler& scheduler, WorkerSlot& slot, ports::Store* store) {
  std::unique_ptr<ports::InboxSession> session;
  LaneUnit unit;
  while (scheduler.next(unit, slot)) {
    TURNSTILE_FAILPOINT("after-permit");
    std::vector<UnitResult> results;
    try {
      TopicState& topic = unit.lane->topic;
      const std::stop_callback on_lost_permit(unit.permit.lost(), [&slot] { slot.watch.cancel().request_stop(); });
      slot.watch.under(unit.permit);
      slot.watch.came({unit.waited, unit.received_at});
      if (unit.others.empty()) slot.watch.between([&](std::size_t settled) { return scheduler.go_on(unit, settled); });
      if (unit.waited) topic.tell_of_permit(*unit.waited);
      if (topic.needs_store() && !session) session = store->open_session();
      if (!unit.others.empty()) results = run_shared(unit, session.get(), slot.watch);
      else
        results.push_back(unit.looks_up ? topic.runner.look_up(unit.works, *unit.looks_up, *session)
                          : unit.unclaimed
                              ? topic.runner.run_unclaimed(unit.works, unit.lane->place, slot.watch)
                              : topic.runner.run(unit.works, unit.lane->place, session.get(), slot.watch, unit.counts));
    } catch (const std::exception& e) {
      results = failed(unit, e.what());
    }
    scheduler.finish(unit, std::move(results), slot);
  }
}

}  // namespace turnstile::detail
