#pragma once
// The permits of a limiter in this process. The member of the domain (tokens/member.hpp) opens the pool and orders
// permits back; threads take and release them. If a permit is free, taking it needs a look at the clock and a few
// atomic operations, but no lock. Only threads that must wait share a lock.
//
//   free + in use + surrendered = opened
//
// This is true whenever no thread is within a call. It applies to an account, which lives until a forfeit. When a
// deadline passes, the permits in use are lost, but they stay in their account. It gets them back when they are
// released, however late.
//
// Thread-safe.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <stop_token>
#include <vector>

#include "permits/permit_account.hpp"
#include "permits/permit_line.hpp"
#include "support/stepped.hpp"
#include "tokens/order.hpp"

namespace turnstile::detail {

class PermitPool {
 public:
  using Count = tokens::Count;
  using Micros = tokens::Micros;
  using Party = PermitLine::Party;
  using Taken = TakenPermits;

  /// How long a failed try counts as a wish. It lets a program that only tries get permits.
  static constexpr Micros kTryCounts = 500'000;

  /// `clock` returns the member's microseconds. `ring` tells the member that something has changed. It is called often
  /// and from any thread, so it must be quick.
  PermitPool(std::function<Micros()> clock, std::function<void()> ring);
  PermitPool(const PermitPool&) = delete;
  PermitPool& operator=(const PermitPool&) = delete;

  // --- for threads ---
  /// Adds a party. `outlives_fence`: its work continues to have effects after the database has fenced this process's
  /// partitions. Such a party gets no permit before admit().
  Party add_party(bool outlives_fence = false);
  /// Removes a party. It must have no waiting caller.
  void remove_party(Party party);
  /// Takes permits if they are free and no earlier caller waits.
  Taken try_take(Count count, Party party = 0);
  /// Waits in line; urgent callers stand before the others. `deliver` is called once, under no lock, unless the request
  /// is withdrawn.
  std::uint64_t take_later(Count count, bool urgent, std::function<void(Taken)> deliver, Party party = 0);
  /// False: it was delivered, or is being delivered now.
  bool withdraw(std::uint64_t waiter);
  /// Also waits in line. `wake` is called once, when it is the caller's turn and a permit is free. try_take_as_woken()
  /// may take that permit.
  void when_free(std::function<void()> wake, Party party = 0);
  Taken try_take_as_woken(Party party = 0);
  void give_back(std::uint64_t token, Count count);
  /// A try failed, and the caller does not wait. The try counts as a wish for kTryCounts, unless a later try succeeds.
  void refused(Count count);
  /// By the clock: false from the own deadline on, whether or not cancel() was called.
  [[nodiscard]] bool holds(std::uint64_t token) const;
  /// While a caller waits, the pool wants at least this number of permits in total.
  void expect(Count at_once);

  // --- for the member ---
  void order(const tokens::Order& order);
  /// The deadline has passed: `lost` is set for the permits in use. They stay in their account, and count as
  /// surrendered or free when they are released.
  void cancel();
  /// From this time on, the pool gives out only reserved permits.
  void open_until(Micros time);
  /// How many permits of the reserve may be in use at once after that time. They were set aside, so no other process
  /// has them.
  void reserve(Count count);
  /// A request for more than this cannot be granted. It waits, but does not block the requests behind it.
  void limit(Count count);
  /// Whether parties that outlive a fence may have permits. At first they may.
  void admit(bool outliving_fence);
  /// From this time on, the pool gives out nothing of its reserve. If the time is in the past, `lost` is set for
  /// reserved permits in use.
  void reserve_until(Micros time);
  /// The own deadline: permits are lost from then on.
  void held_until(Micros time) { held_until_.store(time); }
  [[nodiscard]] tokens::Demand demand() const;
  /// The total of this life, as in the orders.
  [[nodiscard]] Count surrendered() const;

  // --- for people ---
  [[nodiscard]] Count in_use() const;
  [[nodiscard]] Count most_in_use() const { return most_.load(); }
  [[nodiscard]] Count waiting() const { return waiting_.load(); }
  [[nodiscard]] Count overstaying() const;  ///< in use although they are lost
  /// Reserved permits in use, and how often one was taken.
  [[nodiscard]] Count reserved_in_use() const { return static_cast<Count>(reserved_in_use_.load()); }
  [[nodiscard]] std::uint64_t taken_of_reserve() const { return taken_of_reserve_.load(); }

 private:
  template <class T>
  using Atomic = stepped::Atomic<T>;

  using Account = PermitAccount;
  using Life = PermitLife;
  using Waiter = PermitLine::Waiter;

  [[nodiscard]] bool is_open() const { return clock_() < open_until_.load(); }
  Taken take(Count count, Party party);
  Taken take_of_reserve(std::int64_t count);
  [[nodiscard]] bool has_one() const;
  [[nodiscard]] bool is_possible(Count count) const { return count <= std::max<Count>(limit_.load(), 1); }
  std::uint64_t stand_in_line(Waiter waiter, Party party);
  Waiter leave_line(const PermitLine::Place& place);
  void serve();
  void begin_life(Account& account);
  void forfeit(std::int64_t total);
  void credit(Account& account, std::int64_t back);
  [[nodiscard]] std::int64_t still_ours() const;

  const std::function<Micros()> clock_;
  const std::function<void()> ring_;
  Atomic<Life*> life_;
  Atomic<Micros> open_until_{0};
  Atomic<std::int64_t> reserve_{0}, reserved_in_use_{0};
  Atomic<Micros> reserve_until_{0};
  mutable stepped::Mutex reserve_mutex_;  ///< protects reserve_lost_
  std::stop_source reserve_lost_;
  Atomic<std::uint64_t> taken_of_reserve_{0};
  Atomic<Micros> held_until_{std::numeric_limits<Micros>::max()};
  Atomic<std::uint64_t> last_serial_{0};
  Atomic<Count> most_{0}, expected_{0};
  Atomic<Count> waiting_{0};  ///< permits that possible requests wait for
  Atomic<Count> limit_{std::numeric_limits<Count>::max()};
  Atomic<bool> admits_outliving_{true};
  Atomic<Count> tried_{0};
  Atomic<Micros> tried_until_{0};  ///< until then, a failed try counts
  // Permits that were taken several at once: how many are in use, and how many it was the last time.
  std::atomic<Count> together_in_use_{0}, together_{0};
  mutable Atomic<Count> told_{0};  ///< the demand that the member knows

  mutable stepped::Mutex mutex_;  ///< protects the following members
  std::vector<std::unique_ptr<Account>> accounts_;
  std::vector<std::unique_ptr<Life>> lives_;  ///< by number, from 1
  mutable PermitLine line_;
};

}  // namespace turnstile::detail
