#pragma once
// Messages whose next attempt is stored in the database (`retry(...).durable()`), in a worker's transactions.

#include <chrono>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "delivery/failure.hpp"
#include "delivery/unit.hpp"

namespace turnstile::detail {

class StoredRetries {
 public:
  explicit StoredRetries(Unit& unit) : unit_(unit) {}

  /// Takes items out that must not share a transaction with an earlier item of the same message: only one of them is the
  /// record that its row expects. They run in the next transaction.
  [[nodiscard]] static Items take_repeats(Items& items);
  /// In the open transaction that has admitted these items: decides which of them run in it, see UnitItem::turn and
  /// UnitItem::deferral. Throws what the session throws.
  void ask(const Items& items);
  /// Whether the item runs now. False: it is settled by this transaction without a run of its handler.
  [[nodiscard]] bool runs(UnitItem& item);
  /// The item's handler has failed, and the open transaction continues without it: its next attempt will be stored. False:
  /// its statements cannot be taken back one by one, or it has no next attempt.
  [[nodiscard]] bool take_out(UnitItem& item, const Failure& failure);
  /// Whether the open transaction must be committed although no handler runs in it.
  [[nodiscard]] static bool need_commit(const Items& items);
  /// Before the commit: stores the messages with a later attempt, and ends the stored retries of the others. Throws what
  /// the session throws.
  void write(const Items& items);
  /// After the commit: the relay learns when the first of the stored messages is due.
  void ring(const Items& items);

  /// Stores an item that has failed alone, in a transaction of its own. After a failure it is not stored. If it is not
  /// fresh, it is not stored either.
  std::optional<Failure> store(UnitItem& item, std::chrono::milliseconds delay, const std::string& why);

 private:
  [[nodiscard]] bool waits() const noexcept { return unit_.plan().retry.durable == DurableRetry::later_messages_wait; }
  void defer(UnitItem& item, std::chrono::milliseconds delay, const std::string& why);

  Unit& unit_;
  std::set<std::string_view> keys_;  ///< of messages that stay stored in this transaction, if later messages wait
};

}  // namespace turnstile::detail
