#pragma once
// Calls the handler of a unit.

#include <optional>
#include <span>
#include <vector>

#include "delivery/failure.hpp"
#include "delivery/unit.hpp"

namespace turnstile::detail {

struct HandlerCall {
  std::optional<Failure> failure;  ///< absent: the items are done, or skipped
  bool skipped = false;
};

/// Calls the handler of the unit's topic with `messages`, under `context`. Never throws. `items`: the items of the open
/// transaction. `culprit`: the item to blame if the handler fails.
HandlerCall call_handler(Unit& unit, std::span<const Message> messages, Context& context, const Items& items,
                         UnitItem* culprit);

/// The handler is to blame for this failure: it counts for the circuit breaker, if the topic has one.
void count_failure(Unit& unit, Failure& failure);

/// The messages of these items, as a handler gets them: with their ids, if they have ids. `attempt` is the highest of
/// their attempt numbers.
struct Batch {
  explicit Batch(std::span<const UnitItem* const> items);
  std::vector<MessageId> ids;
  std::vector<Message> messages;
  int attempt = 1;
};

}  // namespace turnstile::detail
