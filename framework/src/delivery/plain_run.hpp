#pragma once
// Mode at_least_once: handlers run without a transaction.

#include <optional>
#include <span>

#include "delivery/handler_call.hpp"
#include "delivery/isolation.hpp"
#include "delivery/unit.hpp"
#include "delivery/verdicts.hpp"

namespace turnstile::detail {

class PlainRun {
 public:
  static void run(Unit& unit);

  explicit PlainRun(Unit& unit) : unit_(unit), verdicts_(unit) {}
  virtual ~PlainRun() = default;
  PlainRun(const PlainRun&) = delete;
  PlainRun& operator=(const PlainRun&) = delete;

 protected:
  /// Calls the handler for these items, and gives them their verdicts.
  void run_items(const Items& items);
  /// The fields of the handler's Context, except the attempt and the stop token. `alone`: null if the handler takes
  /// several messages at once.
  [[nodiscard]] virtual Context::Fields fields(const UnitItem* alone);
  /// Called when the handler's call has failed. True: the handler is not to blame, and the items have their verdicts.
  virtual bool excuses(const Failure& failure, const Items& items);

  Unit& unit_;
  Verdicts verdicts_;

 private:
  void run_alone(UnitItem& item);
  std::optional<Failure> run_together(const Items& items);
  HandlerCall call(std::span<const Message> messages, std::span<const MessageId> ids, int attempt, UnitItem* alone);
};

}  // namespace turnstile::detail
