#pragma once
// The account of a permit pool, and the lives of its permits.

#include <algorithm>
#include <cstdint>
#include <stop_token>

#include "support/stepped.hpp"

namespace turnstile::detail {

/// The account from one forfeit to the next. The pool keeps all of them, like PermitLife, because a thread may be
/// reading one; they are few.
struct PermitAccount {
  stepped::Atomic<std::int64_t> opened{0};
  stepped::Atomic<std::int64_t> surrender_to{0};
  stepped::Atomic<std::int64_t> surrendered{0};
  stepped::Atomic<std::int64_t> free{0};

  /// How many of the caller's `count` permits are owed. They are now surrendered.
  std::int64_t settle_debt(std::int64_t count) {
    for (std::int64_t done = surrendered.load();;) {
      const std::int64_t owed = std::min(count, surrender_to.load() - done);
      if (owed <= 0) return 0;
      if (surrendered.compare_exchange_weak(done, done + owed)) return owed;
    }
  }

  /// Takes the free permits that are owed. The caller has them now.
  std::int64_t withdraw_idle() {
    const std::int64_t owed = surrender_to.load() - surrendered.load();
    if (owed <= 0) return 0;
    for (std::int64_t at_hand = free.load();;) {
      const std::int64_t idle = std::min(at_hand, owed);
      if (idle <= 0) return 0;
      if (free.compare_exchange_weak(at_hand, at_hand - idle)) return idle;
    }
  }
};

/// The time from one forfeit or cancel to the next. Its permits are lost together.
struct PermitLife {
  PermitLife(std::uint64_t n, PermitAccount& a) : number(n), account(a) {}
  const std::uint64_t number;
  PermitAccount& account;
  stepped::Atomic<std::int64_t> in_use{0};
  std::stop_source lost;
};

}  // namespace turnstile::detail
