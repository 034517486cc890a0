#pragma once
// Calls a handler.

#include <optional>
#include <span>
#include <vector>

#include "delivery/failure.hpp"
#include "delivery/unit.hpp"

namespace turnstile {

struct HandlerCall {
  std::optional<Failure> failure;  ///< nothing: the items are done, or skipped
  bool skipped = false;
};

/// Calls the handler of the unit's topic with `messages`, under `context`. Never throws. `culprit`: the item to blame when it fails.
/// `items`: those of the open transaction.
HandlerCall call_handler(Unit& unit, std::span<const Message> messages, Context& context, const Items& items,
                         UnitItem* culprit);

/// The messages of these items, for a handler that takes several at once, and the highest number of their attempts.
struct Batch {
  explicit Batch(const Items& items);
  std::vector<Message> messages;
  int attempt = 1;
};

}  // namespace turnstile
