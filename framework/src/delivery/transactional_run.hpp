#pragma once
// Modes transactional, by_offset and numbered. One transaction contains the ids of a batch, the effects of its handlers
// and the commit.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "delivery/isolation.hpp"
#include "delivery/outgoing.hpp"
#include "delivery/stored_retries.hpp"
#include "delivery/unit.hpp"
#include "delivery/verdicts.hpp"

namespace turnstile::detail {

class TransactionalRun {
 public:
  static void run(Unit& unit);

  explicit TransactionalRun(Unit& unit) : unit_(unit), verdicts_(unit), retries_(unit) {}

  // The steps of run(), for a transaction of several units (shared_transaction.hpp):
  /// The items that may run. The others have their verdicts.
  Items admit();
  /// Runs the items in transactions of their own, and isolates those that fail.
  void run_apart(Items items);
  /// Call it before the items run in another transaction.
  void prepare(const Items& items);
  /// The items in the open transaction: `all` are its items, and those of this unit begin at `first`.
  struct Place {
    const Items& all;
    std::size_t first = 0;
  };
  /// Runs the handlers of the items in the open transaction, which has admitted them.
  std::optional<Failure> run_in(const Place& place, const Items& items);
  /// Whether the last run_in() did something that must be committed.
  [[nodiscard]] bool must_commit() const noexcept { return must_commit_; }
  /// How many messages had their handlers called since prepare().
  [[nodiscard]] std::size_t handled() const noexcept { return handled_; }
  /// Whether the open transaction must not be committed, because the unit was cancelled.
  std::optional<Failure> why_no_commit(const Items& items);
  /// Before the commit. Throws what the session throws.
  void write_retries(const Items& items) { retries_.write(items); }
  /// After a commit with this failure, or none: wakes the relay up.
  void ring(const Items& items, bool committed);
  /// The answer to COMMIT was lost. Absent: it was committed.
  std::optional<Failure> decide_doubt(const Items& items, const std::string& why);
  /// Counts that these items were busy, or lost their connection. Returns how often in a row.
  int count_tries(const Items& items);
  /// Whether the item has been busy, or lost its connection, so often that it must not share a transaction.
  [[nodiscard]] bool must_run_alone(const UnitItem& item) const;
  [[nodiscard]] Unit& unit() const noexcept { return unit_; }
  [[nodiscard]] Verdicts& verdicts() noexcept { return verdicts_; }

 private:
  /// Whether these items start another transaction of the unit after its target time.
  [[nodiscard]] bool is_late(const Items& items) const;
  [[nodiscard]] bool may_go_on(const Items& items) const;
  /// Tells the session which transaction follows the one of these items, if that is certain enough.
  void announce_next(const Items& items);
  /// Runs the items in one transaction. After success they have their verdicts.
  std::optional<Failure> attempt(Items items);
  std::optional<Failure> transact(const Items& items);
  std::optional<Failure> begin(const Items& items);
  std::optional<Failure> run_handlers(const Place& place, const Items& items);
  std::optional<Failure> run_one_by_one(const Place& place, const Items& items);
  std::optional<Failure> run_as_batch(const Place& place, const Items& items);
  std::optional<Failure> commit(const Items& items);
  enum class Evidence : std::uint8_t { id, not_needed, none };
  [[nodiscard]] Evidence evidence_of(const UnitItem& item) const;
  Failure count_busy(const Items& items, Failure failure);
  [[nodiscard]] bool store_answers() const;
  [[nodiscard]] ports::InboxSession& session() const noexcept { return unit_.session(); }

  Unit& unit_;
  Verdicts verdicts_;
  StoredRetries retries_;
  std::vector<Items> parts_;  // the transactions of the unit, if none fails
  std::chrono::steady_clock::time_point since_;
  // Of the last attempt:
  Items fresh_;
  bool must_commit_ = false;
  std::size_t published_ = 0;
  std::size_t handled_ = 0;      ///< messages whose handler was called
  UnitItem* overdue_ = nullptr;  ///< its handler ran for longer than handler_timeout
};

/// Whether a failure of the commit, or of a handler's statement, is due to that statement and not to an outage.
bool is_by_handler(const Failure& failure, ports::Standing standing);

}  // namespace turnstile::detail
