#pragma once
// The decision about each message, and its log line: settled, retried, dead-lettered or put back.

#include <chrono>
#include <optional>
#include <string>

#include "delivery/failure.hpp"
#include "delivery/unit.hpp"

namespace turnstile::detail {

class Verdicts {
 public:
  explicit Verdicts(Unit& unit) : unit_(unit) {}

  /// The handler has run, and its effect is permanent.
  void done(UnitItem& item);
  /// The transaction of these items was committed. The admission of each item decides its verdict.
  void committed(const Items& items);
  /// The message's id was seen before.
  void duplicate(UnitItem& item);
  /// The message failed alone. The topic's retry policy decides what follows.
  void failed(UnitItem& item, const Failure& failure);
  /// The message must never run again. If its dead letter cannot be stored, it is not settled, and the messages behind
  /// it wait.
  void dead_letter(UnitItem& item, const DeadLetter& letter);
  /// The message became a dead letter under an earlier owner of the partition, and that owner had not committed its
  /// offset.
  void skip_dead(UnitItem& item);
  /// The message is a dead letter that was published again for another handler.
  void pass_over(UnitItem& item, std::string_view handler);
  /// The items could not run now, and have not failed: no attempt is counted. `tries`: how often in a row.
  void again_soon(const Items& items, const std::string& why, int tries = 0);
  /// The store was asked to take the items in; `failure` is its answer. A warning reports a store that stays busy.
  void taken_in(const Items& items, const std::optional<Failure>& failure);
  /// The circuit breaker caught their failure: they wait at their places until it is closed, and no attempt is counted.
  void put_back(const Items& items);
  /// The same for handlers that need the store while it is unavailable.
  void wait_for_store(const Items& items);
  /// The message runs again after `delay` with the same attempt number. The messages behind it wait.
  void wait(UnitItem& item, std::chrono::milliseconds delay);

 private:
  void fresh(UnitItem& item);
  void stored(UnitItem& item);
  void runs_elsewhere(UnitItem& item);
  void retry(UnitItem& item, std::chrono::milliseconds delay, const std::string& why);
  void store(UnitItem& item, std::chrono::milliseconds delay, const std::string& why);
  /// One line for neighbours that failed with the same error: in an outage, that is each message.
  void log_stored(const Items& items);
  void log_retry(const UnitItem& item, std::chrono::milliseconds delay, const std::string& text);
  void report_retry(const UnitItem& item, std::chrono::milliseconds delay, const std::string& why);
  bool stops_for(UnitItem& item, const DeadLetter& letter);
  void wait_to_dead_letter(UnitItem& item, const DeadLetter& letter, const std::string& why,
                           std::chrono::milliseconds delay);

  Unit& unit_;
};

}  // namespace turnstile::detail
