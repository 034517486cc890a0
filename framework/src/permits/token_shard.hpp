#pragma once
// The tokens that a TokenService has granted. They are divided into several tables, each with its own lock, so that
// threads seldom wait for each other.

#include <chrono>
#include <cstdint>
#include <deque>
#include <mutex>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "permits/token_loss.hpp"
#include "turnstile/ports/limiter.hpp"

namespace turnstile::detail {

using TokenTime = std::chrono::steady_clock::time_point;

/// A token that was granted and not released.
struct HeldToken {
  Permit permit;
  const ports::Limiter* limiter = nullptr;  ///< known to the service for as long as it lives
  TokenTime since{}, due{};
  bool overdue = false;   ///< its hold_timeout has passed
  TokenLoss::Ptr loss{};  ///< only with a hold_timeout; otherwise the permit's own `lost` is used
  [[nodiscard]] bool lost() const {
    return permit.lost().stop_requested() || (loss && loss->source().stop_requested());
  }
};

/// A part of the tokens.
struct TokenShard {
  /// How many taken-back tokens each shard remembers.
  static constexpr std::size_t kExpiredKept = 4'000;

  mutable std::mutex mutex;
  std::unordered_map<std::uint64_t, HeldToken> held;
  std::set<std::pair<TokenTime, std::uint64_t>> due;  ///< only with a hold_timeout
  std::unordered_set<std::uint64_t> expired;          ///< taken back
  std::deque<std::uint64_t> expired_in_order;

  /// It was taken back.
  void note_expired(std::uint64_t number) {
    expired.insert(number);
    expired_in_order.push_back(number);
    if (expired_in_order.size() <= kExpiredKept) return;
    expired.erase(expired_in_order.front());
    expired_in_order.pop_front();
  }
};

}  // namespace turnstile::detail
