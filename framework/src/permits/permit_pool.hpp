#pragma once
// What this process may use of one limiter, handed out to its threads. The member of the domain (tokens/member.hpp) opens it and
// asks for permits back; threads take and give back. A permit that is there costs a look at the clock and a few atomic
// operations, and no lock; only those who must wait share one.
//
//   free + in use + surrendered = opened
//
// holds whenever no thread is within a call, in one account that lives until a forfeit. When a deadline passes, the permits that
// are out are lost, but they stay in their account: whatever is given back, however late, comes back to it.
//
// Thread-safe.

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <stop_token>
#include <vector>

#include "support/stepped.hpp"
#include "tokens/member.hpp"

namespace turnstile {

class PermitPool {
 public:
  using Count = tokens::Count;
  using Micros = tokens::Micros;
  /// One user of the limiter in this process: a topic of the consumer, or a TokenService. Users that wait are served in turn,
  /// permit for permit, however many threads each of them has. There is one from the start, 0.
  using Party = std::uint32_t;

  /// So long counts a try that failed as a wish, so that a program that only ever tries is granted permits.
  static constexpr Micros kTryCounts = 500'000;

  /// A number of permits that are taken together, and given back together.
  struct Taken {
    std::uint64_t token = 0;  ///< 0: nothing
    std::stop_token lost;     ///< set when they are not ours any more
    explicit operator bool() const { return token != 0; }
  };

  /// `clock`: microseconds, the member's. `ring`: something has changed that the member should hear of; called often and from
  /// any thread, must be quick.
  PermitPool(std::function<Micros()> clock, std::function<void()> ring);
  PermitPool(const PermitPool&) = delete;
  PermitPool& operator=(const PermitPool&) = delete;

  // --- for threads ---
  /// `outlives_fence`: what it runs goes on to have effects after the database has fenced this process's partitions. It gets no
  /// permit before admit().
  Party add_party(bool outlives_fence = false);
  /// Nothing of it waits any more.
  void remove_party(Party party);
  /// Permits that are there now, unless somebody waits who came before.
  Taken try_take(Count count, Party party = 0);
  /// Waits in line; urgent ones stand before the others. `deliver` is called once, under no lock, unless it is withdrawn.
  std::uint64_t take_later(Count count, bool urgent, std::function<void(Taken)> deliver, Party party = 0);
  /// False: it was delivered, or is being delivered now.
  bool withdraw(std::uint64_t waiter);
  /// Stands in line as well; called once when its turn has come and a permit is free, which try_take_as_woken() may take.
  void when_free(std::function<void()> wake, Party party = 0);
  Taken try_take_as_woken(Party party = 0);
  void give_back(std::uint64_t token, Count count);
  /// A try failed, and whoever tried does not wait. Counts as a wish for kTryCounts, unless a try succeeds before.
  void refused(Count count);
  /// By the clock: false from our own deadline on, whether or not cancel() was called yet.
  [[nodiscard]] bool holds(std::uint64_t token) const;
  /// While anybody waits, at least so many are wanted in all.
  void expect(Count at_once);

  // --- for the member ---
  void order(const tokens::Order& order);
  /// The deadline has passed: who runs under a permit is told that it is lost. The permits are ours still, and count as surrendered
  /// or free when they are given back.
  void cancel();
  /// Nothing is handed out from this time on, but what is reserved.
  void open_until(Micros time);
  /// So many may be in use at once that were taken after that time: they were set aside, and nobody else has them.
  void reserve(Count count);
  /// A request for more than this cannot be granted: it waits, but holds up nobody behind it.
  void limit(Count count);
  /// Whether parties that outlive a fence may have permits. At the start they may.
  void admit(bool outliving_fence);
  /// Nothing of the reserve is handed out from this time on. In the past: who runs on it is told that it is lost.
  void reserve_until(Micros time);
  /// Our own deadline: what was taken is not ours from then on.
  void held_until(Micros time) { held_until_.store(time); }
  [[nodiscard]] tokens::Demand demand() const;
  /// In all of this life, as the orders' totals.
  [[nodiscard]] Count surrendered() const;

  // --- for people ---
  [[nodiscard]] Count in_use() const;
  [[nodiscard]] Count most_in_use() const { return most_.load(); }
  [[nodiscard]] Count waiting() const { return waiting_.load(); }
  /// In use although they were lost.
  [[nodiscard]] Count overstaying() const;
  /// In use of those reserved, and how often one was taken.
  [[nodiscard]] Count reserved_in_use() const { return static_cast<Count>(reserved_in_use_.load()); }
  [[nodiscard]] std::uint64_t taken_of_reserve() const { return taken_of_reserve_.load(); }

 private:
  template <class T>
  using Atomic = stepped::Atomic<T>;

  /// From one forfeit to the next. Kept until the pool ends, like Life, since a thread may be looking at it; there are few.
  struct Account {
    Atomic<std::int64_t> opened{0};
    Atomic<std::int64_t> surrender_to{0};
    Atomic<std::int64_t> surrendered{0};
    Atomic<std::int64_t> free{0};
  };
  /// From one forfeit or cancel to the next: whose permits are lost together.
  struct Life {
    Life(std::uint64_t n, Account& a) : number(n), account(a) {}
    const std::uint64_t number;
    Account& account;
    Atomic<std::int64_t> in_use{0};
    std::stop_source lost;
  };
  struct Waiter {
    std::uint64_t number = 0;
    Count count = 1;
    bool urgent = false;
    std::function<void(Taken)> deliver{};  ///< one of the two
    std::function<void()> wake{};
  };
  using Line = std::deque<Waiter>;
  struct Queue {
    Line urgent, normal;
    std::uint64_t served = 0;  ///< permits, urgent ones not counted; on the scale of served_
  };
  struct Place {
    Party party = 0;
    Queue* queue = nullptr;
    Line* line = nullptr;
    Line::iterator at{};
    explicit operator bool() const { return queue != nullptr; }
  };

  [[nodiscard]] bool is_open() const { return clock_() < open_until_.load(); }
  Taken take(Count count, Party party);
  Taken take_of_reserve(std::int64_t count);
  [[nodiscard]] bool has_one() const;
  [[nodiscard]] bool is_possible(Count count) const { return count <= std::max<Count>(limit_.load(), 1); }
  /// Part of the number, so that it is known without the lock.
  [[nodiscard]] static bool outlives_fence(Party party) { return party % 2 == 1; }
  std::uint64_t stand_in_line(Waiter waiter, Party party);
  [[nodiscard]] Place next_served(Count most) const;
  [[nodiscard]] std::uint64_t turn_of(const Queue& queue) const;
  template <class Each>
  void each_waiter(Each each) const;
  Waiter leave_line(const Place& place);
  void serve();
  static std::int64_t settle_debt(Account& account, std::int64_t count);
  static std::int64_t withdraw_idle(Account& account);
  void begin_life(Account& account);
  void forfeit(std::int64_t total);
  void credit(Account& account, std::int64_t back);
  [[nodiscard]] std::int64_t still_ours() const;

  const std::function<Micros()> clock_;
  const std::function<void()> ring_;
  Atomic<Life*> life_;
  Atomic<Micros> open_until_{0};
  Atomic<std::int64_t> reserve_{0};
  Atomic<std::int64_t> reserved_in_use_{0};
  Atomic<Micros> reserve_until_{0};
  mutable stepped::Mutex reserve_mutex_;  ///< of reserve_lost_
  std::stop_source reserve_lost_;
  Atomic<std::uint64_t> taken_of_reserve_{0};
  Atomic<Micros> held_until_{std::numeric_limits<Micros>::max()};
  Atomic<std::uint64_t> last_serial_{0};
  Atomic<Count> most_{0};
  Atomic<Count> waiting_{0};  ///< permits that are waited for, by requests that can be granted
  Atomic<Count> expected_{0};
  Atomic<Count> limit_{std::numeric_limits<Count>::max()};
  Atomic<bool> admits_outliving_{true};
  Atomic<Micros> tried_until_{0};  ///< until then, a failed try counts
  Atomic<Count> tried_{0};
  mutable Atomic<Count> told_{0};  ///< what the member knows to be wanted

  mutable stepped::Mutex mutex_;  ///< of what follows
  std::vector<std::unique_ptr<Account>> accounts_;
  std::vector<std::unique_ptr<Life>> lives_;  ///< by number, from 1
  mutable std::map<Party, Queue> queues_;
  Party last_party_ = 0;
  std::uint64_t last_waiter_ = 0;
  std::uint64_t served_ = 0;  ///< what the last one that was served had had before
};

}  // namespace turnstile
