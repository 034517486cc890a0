#include "engine/worker.hpp"

#include "engine/scheduler.hpp"
#include "support/failpoint.hpp"

namespace turnstile::detail {

void work(Scheduler& scheduler, WorkerSlot& slot, ports::Store* store) {
  std::unique_ptr<ports::InboxSession> session;
  LaneUnit unit;
  while (scheduler.next(unit, slot)) {
    TURNSTILE_FAILPOINT("after-permit");
    UnitResult result;
    try {
      TopicState& topic = unit.lane->topic;
      const std::stop_callback on_lost_permit(unit.permit.lost(), [&slot] { slot.watch.cancel().request_stop(); });
      slot.watch.under(unit.permit);
      slot.watch.came({unit.waited, unit.received_at});
      if (unit.waited) topic.tell_of_permit(*unit.waited);
      if (topic.needs_store() && !session) session = store->open_session();
      result = unit.looks_up    ? topic.runner.look_up(unit.works, *unit.looks_up, *session)
               : unit.unclaimed ? topic.runner.run_unclaimed(unit.works, unit.lane->place, slot.watch)
                                : topic.runner.run(unit.works, unit.lane->place, session.get(), slot.watch, unit.alone);
    } catch (const std::exception& e) {
      result.verdicts.assign(unit.works.size(), Verdict{});
      result.end = UnitResult::End::store_unavailable;
      result.why = e.what();
    }
    scheduler.finish(unit, std::move(result), slot);
  }
}

}  // namespace turnstile::detail
