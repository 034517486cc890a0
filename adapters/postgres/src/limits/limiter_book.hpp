#pragma once
// This process's permits of a limiter, and the threads that wait for more. The worker's threads feed it from the
// database, and collect from it the next statements. Other threads take and release permits, and never wait for the
// network.
//
// Thread-safe. It calls no outside code with its lock held.

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "turnstile/lease_clock.hpp"
#include "turnstile/ports/limiter.hpp"

namespace turnstile::postgres {

using Time = LeaseClock::time_point;

/// A row of the table, in one of its grants.
struct Slot {
  std::int64_t number = 0;
  std::int64_t generation = 0;
  friend auto operator<=>(const Slot&, const Slot&) = default;
};

inline constexpr std::int64_t kMostPermits = 1'000'000'000;

struct LimiterPace {
  std::chrono::milliseconds lease{};
  std::chrono::milliseconds poll{};
  /// Counted from before the statement that granted or renewed it was sent.
  [[nodiscard]] Time deadline(Time sent) const { return sent + lease - lease / 8; }
  /// How long an unneeded permit is kept while no other process waits.
  [[nodiscard]] std::chrono::milliseconds linger() const { return 5 * poll; }
  /// How long a permit is kept while others wait for their turn.
  [[nodiscard]] std::chrono::milliseconds turn() const { return 4 * poll; }
  /// How long a wait counts without renewal.
  [[nodiscard]] std::chrono::milliseconds wait_counts() const { return 50 * poll; }
};

/// The database's data about a limiter.
struct LimiterView {
  std::int64_t id = 0;
  std::int64_t version = 0;
  std::int64_t limit = 0;
  bool ordered = false;    ///< set by an operator
  bool overdue = false;    ///< expired permits must be swept
  bool unsettled = false;  ///< the lowest value of all live processes is another
  bool rivals = false;     ///< another process waits
  std::int64_t share = 0;
  std::int64_t free = 0;  ///< of all permits, when it was read
};

/// The next statements for a limiter, in this order.
struct LimiterErrand {
  std::vector<Slot> give_back;
  bool settle = false;
  bool sweep = false;
  std::int64_t take = 0;
  std::int64_t waiting = 0;  ///< to be recorded if not 0
  bool wait_anew = false;    ///< its turn is over: it waits from now on
  bool wait_no_more = false;
};

class LimiterBook {
 public:
  struct Taken {
    std::uint64_t token = 0;  ///< 0: none
    std::stop_token lost;
  };
  /// `ring` tells that a statement is due; it must be quick.
  LimiterBook(std::string name, std::int64_t configured, const LimiterPace& pace, std::function<void()> ring);

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] std::int64_t configured() const noexcept { return configured_; }

  // --- for threads ---
  Taken try_take();
  void when_free(std::function<void()> wake);
  /// Waits in line. `deliver` is called once, possibly within this call, unless the request is withdrawn.
  std::uint64_t take_later(std::function<void(Taken)> deliver);
  /// False: it was delivered, or is being delivered now.
  bool withdraw(std::uint64_t request);
  void give_back(std::uint64_t token) noexcept;
  /// False once its deadline has passed, even before expire() has set `lost`.
  [[nodiscard]] bool holds(std::uint64_t token) const noexcept;
  void expect(std::int64_t at_once);
  [[nodiscard]] ports::LimiterState state() const;

  // --- for the thread that queries the database ---
  /// When the next errand is due. time_point::max(): only after a ring.
  [[nodiscard]] Time due() const;
  /// Absent: not declared yet.
  [[nodiscard]] std::optional<LimiterView> known() const;
  /// Permits that could be used now, in addition to the held ones.
  [[nodiscard]] std::int64_t wanted() const;
  /// Whether it returned a permit for others since its wait was recorded: it waits from now on.
  [[nodiscard]] bool is_turn_over() const;
  LimiterErrand errand(Time now);
  /// The errand of this view was run, with these grants.
  void done(const LimiterErrand& errand, const std::vector<Slot>& granted, Time sent, const LimiterView& view);
  /// The errand was not run, or its result is unknown: everything is read again.
  void undone(const LimiterErrand& errand);
  /// Held and not expired.
  [[nodiscard]] std::vector<Slot> held() const;
  /// Expired here, and still in use. They must not be renewed, and no other process may get them before the lease is
  /// over.
  [[nodiscard]] std::vector<Slot> overstaying() const;
  /// The result of a renewal: of `asked`, `renewed` were renewed, and the others are lost. Returns how many of the lost
  /// ones were in use.
  std::int64_t renewed(const std::vector<Slot>& asked, const std::vector<Slot>& renewed, Time sent);
  void serve();

  // --- for the thread that watches the clock ---
  [[nodiscard]] Time next_deadline() const;
  /// Sets `lost` of the permits whose time is over. Returns how many were in use.
  std::int64_t expire(Time now);

 private:
  struct Held {
    Slot slot;
    Time deadline;
    bool in_use = false;
    bool fresh = true;  ///< not used yet
    Time idle_since;
    std::stop_source lost{std::nostopstate};
  };
  using HeldMap = std::map<std::uint64_t, Held>;
  /// It has one of the functions.
  struct Waiter {
    std::uint64_t number = 0;
    std::function<void()> wake{};
    std::function<void(Taken)> deliver{};
  };

  HeldMap::iterator find_idle(Time now);
  [[nodiscard]] HeldMap::iterator find(const Slot& slot);
  Taken take(HeldMap::iterator idle);
  std::uint64_t stand_in_line(Waiter waiter);
  [[nodiscard]] std::int64_t wanted(Time now) const;
  [[nodiscard]] std::int64_t room() const;
  [[nodiscard]] bool is_over() const;
  [[nodiscard]] bool surrenders() const;
  [[nodiscard]] Time idle_until(const Held& held) const;
  [[nodiscard]] Time wait_due() const;
  void note_returned();
  void return_idle(Time now, std::vector<Slot>& to);
  void plan_wait(Time now, std::int64_t wanted, LimiterErrand& errand);
  std::int64_t lose(HeldMap::iterator held, std::vector<std::stop_source>& told);
  [[nodiscard]] std::chrono::milliseconds jittered(std::chrono::milliseconds time);

  const std::string name_;
  const std::int64_t configured_;
  const LimiterPace pace_;
  const std::function<void()> ring_;

  mutable std::mutex mutex_;
  // By token. The row of a permit is no token: after a failover, the database may grant a row anew that it granted before.
  HeldMap held_;
  std::map<std::uint64_t, Slot> overstaying_;
  std::vector<Slot> returning_;
  std::deque<Waiter> line_;
  std::uint64_t last_waiter_ = 0;
  std::uint64_t last_token_ = 0;
  std::int64_t in_use_ = 0;
  std::int64_t most_in_use_ = 0;
  std::int64_t expected_ = 0;
  std::optional<Time> refused_at_;  ///< when try_take() last failed
  std::optional<LimiterView> view_;
  Time viewed_at_{};
  Time next_view_{};
  Time next_take_{};
  std::int64_t told_waiting_ = 0;  ///< the wait that the database knows
  Time told_at_{};
  bool short_ = false;      ///< the last errand brought less than was wanted
  bool turn_over_ = false;  ///< a permit was returned since the wait was recorded
  std::uint32_t dice_ = 1;
};

}  // namespace turnstile::postgres
