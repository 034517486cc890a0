#pragma once
// Messages whose next attempt is stored in the database (`retry(...).durable()`), in a worker's transactions.

#include <chrono>
#include <optional>
#include <string>

#include "delivery/failure.hpp"
#include "delivery/unit.hpp"

namespace turnstile::detail {

class Verdicts;

class StoredRetries {
 public:
  StoredRetries(Unit& unit, Verdicts& verdicts) : unit_(unit), verdicts_(verdicts) {}

  /// In the open transaction that has admitted these items: finds those that must not run now. Throws what the session
  /// throws.
  void ask(const Items& items);
  /// The items that must not run now, of the last call of ask().
  [[nodiscard]] const Items& held_back() const noexcept { return held_back_; }
  /// Settles held_back(), and stores those that wait for their key. No transaction may be open. After a failure they are
  /// not settled.
  std::optional<Failure> settle_held_back();

  /// Whether items of the open transaction came back, and are settled by it.
  [[nodiscard]] bool any_ends() const noexcept { return !ends_.empty(); }
  /// Ends their rows in the open transaction. Throws what the session throws.
  void end_all();

  /// Stores an item whose attempt has failed, and settles it. No transaction may be open. After a failure it is not
  /// settled.
  std::optional<Failure> defer(UnitItem& item, std::chrono::milliseconds delay, const std::string& error);

 private:
  std::optional<Failure> store(const Items& items, std::chrono::milliseconds delay, const std::string& error);

  Unit& unit_;
  Verdicts& verdicts_;
  Items held_back_;
  std::vector<std::pair<UnitItem*, ports::RetryTurn>> answers_;  ///< of held_back_
  std::vector<ports::RetryRef> ends_;
};

}  // namespace turnstile::detail
