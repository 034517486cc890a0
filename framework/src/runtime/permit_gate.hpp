#pragma once
// What this process may use of one limiter, handed out to its threads. The member of the domain (tokens/member.hpp) opens it and
// asks for permits back; threads take and give back. A permit that is there costs a look at the clock and a few atomic
// operations, and no lock; only those who must wait share one.
//
//   free = opened - surrendered - in use
//
// Thread-safe.

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <stop_token>
#include <vector>

#include "tokens/member.hpp"

namespace turnstile {

class PermitGate {
 public:
  using Count = tokens::Count;
  using Micros = tokens::Micros;

  /// A number of permits that are taken together, and given back together.
  struct Taken {
    std::uint64_t token = 0;  ///< 0: nothing
    std::stop_token lost;     ///< set when they are not ours any more
    explicit operator bool() const { return token != 0; }
  };

  /// `clock`: microseconds, the member's. `ring`: something has changed that the member should hear of; called often and from
  /// any thread, must be quick.
  PermitGate(std::function<Micros()> clock, std::function<void()> ring);
  PermitGate(const PermitGate&) = delete;
  PermitGate& operator=(const PermitGate&) = delete;

  // --- for threads ---
  /// Permits that are there now, unless somebody waits who came before.
  Taken try_take(Count count);
  /// Waits in line; urgent ones stand before the others. `deliver` is called once, under no lock, unless it is withdrawn.
  std::uint64_t take_later(Count count, bool urgent, std::function<void(Taken)> deliver);
  /// False: it was delivered, or is being delivered now.
  bool withdraw(std::uint64_t waiter);
  /// Stands in line as well; called once when its turn has come and a permit is free, which try_take_as_woken() may take.
  void when_free(std::function<void()> wake);
  Taken try_take_as_woken();
  void give_back(std::uint64_t token, Count count);
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
  /// Our own deadline: what was taken is not ours from then on.
  void held_until(Micros time) { held_until_.store(time, std::memory_order_release); }
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
  /// From one forfeit or cancel to the next. Kept for good, since a thread may be looking at it; there are few.
  struct Life {
    std::uint64_t number = 1;
    std::uint64_t account = 1;  ///< the same until a forfeit: whose permits come back to whom
    std::atomic<std::int64_t> opened{0};
    std::atomic<std::int64_t> surrender_to{0};
    std::atomic<std::int64_t> surrendered{0};
    std::atomic<std::int64_t> free{0};
    std::atomic<std::int64_t> in_use{0};
    std::stop_source lost;
  };
  struct Waiter {
    std::uint64_t number = 0;
    Count count = 1;
    bool urgent = false;
    std::function<void(Taken)> deliver{};  ///< one of the two
    std::function<void()> wake{};
  };

  [[nodiscard]] bool is_open() const { return clock_() < open_until_.load(std::memory_order_acquire); }
  Taken take(Count count);
  Taken take_of_reserve(std::int64_t count);
  [[nodiscard]] bool has_one() const;
  std::uint64_t stand_in_line(Waiter waiter);
  void serve();
  static std::int64_t settle_debt(Life& life, std::int64_t count);
  void surrender_idle(Life& life);
  void forfeit(std::int64_t total);
  void credit(Life& life, std::int64_t back);
  [[nodiscard]] std::int64_t still_ours() const;

  const std::function<Micros()> clock_;
  const std::function<void()> ring_;
  std::atomic<Life*> life_;
  std::atomic<Micros> open_until_{0};
  std::atomic<std::int64_t> reserve_{0};
  std::atomic<std::int64_t> reserved_in_use_{0};
  std::atomic<std::uint64_t> taken_of_reserve_{0};
  std::atomic<Micros> held_until_{std::numeric_limits<Micros>::max()};
  std::atomic<std::uint64_t> last_serial_{0};
  std::atomic<Count> most_{0};
  std::atomic<Count> waiting_{0};  ///< permits that are waited for
  std::atomic<Count> expected_{0};
  mutable std::atomic<Count> told_{0};  ///< what the member knows to be wanted

  mutable std::mutex mutex_;  ///< of what follows
  std::vector<std::unique_ptr<Life>> lives_;
  std::deque<Waiter> line_;
  std::uint64_t last_waiter_ = 0;
  Count urgent_waiting_ = 0;
};

}  // namespace turnstile
