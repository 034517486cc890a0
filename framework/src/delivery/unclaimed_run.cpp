#include "delivery/unclaimed_run.hpp"

#include "delivery/admission.hpp"
#include "message/message_id.hpp"

namespace turnstile::detail {

void UnclaimedRun::run(Unit& unit) {
  UnclaimedRun unclaimed(unit);
  Items todo = admit(unit, unclaimed.verdicts_);
  Items done;  // they have taken effect, and their results must be recorded first
  std::erase_if(todo, [&](UnitItem* item) {
    const bool has_run = unit.services().claims->pending().has_done(unit.topic().handler, *item->id);
    if (has_run) done.push_back(item);
    return has_run;
  });
  unclaimed.verdicts_.wait_for_store(done);
  unclaimed.run_items(todo);
  unit.result().counts.unclaimed = unit.result().counts.done + unit.result().counts.skipped;
}

Context::Fields UnclaimedRun::fields(const UnitItem* alone) {
  Context::Fields fields = PlainRun::fields(alone);
  fields.outgoing = &outgoing_;
  if (alone != nullptr) fields.message_id = effect_key(unit_.plan().handler, *alone->id);
  return fields;
}

/// The handler needs the store: the message waits for it, and no attempt is counted.
bool UnclaimedRun::excuses(const Failure& failure, const Items& items) {
  if (failure.kind != Failure::Kind::unavailable) return false;
  verdicts_.wait_for_store(items);
  return true;
}

}  // namespace turnstile::detail
