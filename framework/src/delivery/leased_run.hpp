#pragma once
// Mode leased: one transaction claims a unit, its handlers run outside of any transaction, and another transaction
// records the results.

#include <optional>

#include "delivery/claimed_unit.hpp"
#include "delivery/unit.hpp"
#include "delivery/verdicts.hpp"

namespace turnstile::detail {

class LeasedRun {
 public:
  static void run(Unit& unit);

 private:
  explicit LeasedRun(Unit& unit) : unit_(unit), verdicts_(unit), claimed_(unit_, verdicts_) {}

  void run_claimed(const Items& items);
  /// False: the item must not run now, and has its verdict.
  bool may_run(UnitItem& item);
  void run_handler(const Items& items);
  void run_halves(const Items& items);
  void not_claimed(UnitItem& item);
  void other_is_running(UnitItem& item);
  void settle_repeats();
  void settle_duplicate(UnitItem& item);
  void answer_again();

  Unit& unit_;
  Verdicts verdicts_;
  ClaimedUnit claimed_;
  Items repeats_;     ///< earlier items of the unit have the same ids
  Items duplicates_;  ///< they get the stored response again
};

}  // namespace turnstile::detail
