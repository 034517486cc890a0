#pragma once
// The decision about each message, and its log line: settled, retried, dead-lettered, or put back.

#include <chrono>
#include <string>

#include "delivery/failure.hpp"
#include "delivery/unit.hpp"

namespace turnstile {

class Verdicts {
 public:
  explicit Verdicts(Unit& unit) : unit_(unit) {}

  /// The handler has run, and its effect is permanent.
  void done(UnitItem& item);
  /// The transaction of these has committed: each is settled as the inbox admitted it.
  void committed(const Items& items);
  /// Its id was seen before.
  void duplicate(UnitItem& item);
  /// It failed alone: the topic's retry policy decides.
  void failed(UnitItem& item, const Failure& failure);
  /// It will never run again. Without a dead letter nothing is settled, and what comes behind it waits.
  void dead_letter(UnitItem& item, const DeadLetter& letter);
  /// It became a dead letter under an earlier owner of the partition, which has not committed its offset.
  void skip_dead(UnitItem& item);
  /// It is a dead letter that is published again for another handler.
  void pass_over(UnitItem& item, std::string_view handler);
  /// Something was in the way, and the items have not failed: no attempt is counted. `tries`: how often in a row.
  void again_soon(const Items& items, const std::string& why, int tries = 0);
  /// The same, where the handler cannot do without the store, which is unavailable.
  void wait_for_store(const Items& items);
  /// It runs again after `delay`, under the same attempt, and blocks what comes behind it.
  void wait(UnitItem& item, std::chrono::milliseconds delay);

 private:
  void retry(UnitItem& item, std::chrono::milliseconds delay, int attempt, const std::string& why);
  bool stops_for(UnitItem& item, const DeadLetter& letter);
  void wait_to_dead_letter(UnitItem& item, const DeadLetter& letter, const std::string& why,
                           std::chrono::milliseconds delay);

  Unit& unit_;
};

}  // namespace turnstile
