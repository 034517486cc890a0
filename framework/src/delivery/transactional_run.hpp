#pragma once
// Modes transactional, by_offset and numbered. One transaction contains the ids of a batch, the effects of its handlers
// and the commit.

#include <cstddef>
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

 private:
  explicit TransactionalRun(Unit& unit) : unit_(unit), verdicts_(unit), retries_(unit) {}

  /// Runs the items in one transaction. After success they have their verdicts.
  std::optional<Failure> attempt(Items items);
  std::optional<Failure> transact(const Items& items);
  std::optional<Failure> begin(const Items& items);
  std::optional<Failure> run_handlers(const Items& items, const Items& fresh);
  std::optional<Failure> run_one_by_one(const Items& items);
  std::optional<Failure> run_as_batch(const Items& items, Items fresh);
  std::optional<Failure> commit(const Items& items, const Items& fresh);
  std::optional<Failure> decide_doubt(const Items& items, const Items& fresh, const std::string& why);
  Failure count_busy(const Items& items, Failure failure);
  [[nodiscard]] bool store_answers() const;
  [[nodiscard]] ports::InboxSession& session() const noexcept { return unit_.session(); }

  Unit& unit_;
  Verdicts verdicts_;
  StoredRetries retries_;
  // Of the last attempt:
  std::size_t published_ = 0;
  std::size_t handled_ = 0;      ///< messages whose handler was called
  UnitItem* overdue_ = nullptr;  ///< its handler ran for longer than handler_timeout
};

}  // namespace turnstile::detail
