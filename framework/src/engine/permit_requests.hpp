#pragma once
// The scheduler's requests for permits that wait in the limiters' lines. A request that waits keeps its limiter, and is
// granted permits that nobody uses. So each one is withdrawn when the scheduler stops.

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "turnstile/ports/limiter.hpp"

namespace turnstile::detail {

/// Thread-safe. Always in a shared_ptr.
class PermitRequests : public std::enable_shared_from_this<PermitRequests> {
 public:
  /// Requests one permit. Calls `deliver` once, from any thread, possibly within this call, unless it is withdrawn.
  void ask(ports::Limiter& limiter, std::function<void(Permit)> deliver);
  /// Withdraws all requests, and those that are made from now on.
  void withdraw_all();

 private:
  using Waiting = std::unordered_map<std::uint64_t, std::function<bool()>>;
  void forget(std::uint64_t number);

  std::mutex mutex_;  ///< not held while a limiter is called, because it may deliver within the call
  Waiting waiting_;   ///< how to withdraw each one; empty: it is being made
  std::uint64_t last_ = 0;
  bool over_ = false;
};

}  // namespace turnstile::detail
