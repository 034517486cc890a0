#pragma once
// Renews the claims of running messages, and cancels handlers that have lost their claim. Its thread starts with the
// first claim.

#include <chrono>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "delivery/pending_completions.hpp"
#include "delivery/run_state.hpp"
#include "support/periodic_thread.hpp"
#include "support/run_log.hpp"
#include "turnstile/lease_clock.hpp"
#include "turnstile/ports/claims.hpp"

namespace turnstile::detail {

/// Thread-safe. It must outlive its Hold objects.
class LeaseRenewer {
 public:
  using Clock = LeaseClock;

  LeaseRenewer(std::shared_ptr<ports::Claims> claims, std::shared_ptr<const RunLog> run_log);
  ~LeaseRenewer() = default;
  LeaseRenewer(const LeaseRenewer&) = delete;
  LeaseRenewer& operator=(const LeaseRenewer&) = delete;

  /// The claims of a worker's unit.
  struct Held {
    HandlerId handler;
    MessageId owner;
    std::chrono::milliseconds lease{};
    Clock::time_point since{};  ///< when the claim was sent; its lease ends at this time plus `lease`, or later
    TopicPartition at;
    RunState* watch = nullptr;  ///< cancelled when a claim is lost
    std::vector<ports::HeldClaim> claims;
  };

  /// Renews the claims while this object lives. It belongs to one worker.
  class Hold {
   public:
    Hold(LeaseRenewer& renewer, Held held);
    ~Hold();
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;
    /// Stops the renewal of these claims, because they are about to end.
    void let_go(std::span<const ports::ClaimEnd> ends);
    /// Whether the lease is over, by the clock. After a suspension, the renewer may not have cancelled the unit yet.
    [[nodiscard]] bool is_over() const;

   private:
    LeaseRenewer& renewer_;
    std::list<Held>::iterator place_;
  };

  [[nodiscard]] PendingCompletions& pending() noexcept { return pending_; }
  [[nodiscard]] ports::Claims& claims() noexcept { return *claims_; }

  /// Remembers an owner that may have claimed messages, and under which nothing has run.
  void abandon(const MessageId& owner);
  [[nodiscard]] std::vector<MessageId> abandoned() const;

 private:
  /// The speeds of two machines' clocks differ by less than 1/16. The lease must end by this process's clock before it
  /// ends by any other clock.
  static constexpr int kDrift = 16;

  /// Renews the claims that are due. Returns the time of the next look.
  PeriodicThread::Time look();
  [[nodiscard]] Clock::time_point next_due() const;
  [[nodiscard]] static Clock::time_point end_of(const Held& held) {
    return held.since + held.lease - held.lease / kDrift;
  }
  PeriodicThread::Time renew(std::unique_lock<std::mutex>& lock, std::list<Held>::iterator place);
  void lose(std::unique_lock<std::mutex>& lock, Held& held, const std::string& why);

  std::shared_ptr<ports::Claims> claims_;
  std::shared_ptr<const RunLog> run_log_;
  PendingCompletions pending_;
  mutable std::mutex mutex_;
  std::list<Held> held_;
  std::vector<MessageId> abandoned_;
  const Held* renewing_ = nullptr;  ///< the thread is renewing these claims now, without the lock
  bool gone_ = false;               ///< they were removed in the meantime
  /// A claim that is due before this time wakes the thread. During the pause after a failed renewal, no claim is.
  Clock::time_point wakes_at_ = Clock::time_point::max();
  PeriodicThread thread_{[this] { return look(); }};
};

}  // namespace turnstile::detail
