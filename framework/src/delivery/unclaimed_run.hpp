#pragma once
// Mode leased with store_down = "run", while the store is unavailable: handlers run without claims.

#include "delivery/outgoing.hpp"
#include "delivery/plain_run.hpp"

namespace turnstile::detail {

class UnclaimedRun final : public PlainRun {
 public:
  static void run(Unit& unit);

 private:
  using PlainRun::PlainRun;
  Context::Fields fields(const UnitItem* alone) override;
  bool excuses(const Failure& failure, const Items& items) override;

  NoStoreOutgoing outgoing_;
};

}  // namespace turnstile::detail
