#pragma once
// A member of a domain, seen from within: the events that it writes to the token log, and the permits that its process
// may use. Pure: its inputs are the records read, the demand and the time. Its outputs are events and orders.
//
//                 read(), tick()                      take_events()  -> appended to the log
//   token log ──▶ state ──▶ Member ──▶
//                 demand(), given_back()              take_orders()  -> to the pools, which give permits to threads
//
// Its own deadline is a lease after it *sent* the last event that it has read back, less a margin. Other members may
// expire it a lease after they *read* its last event. Its own deadline therefore passes first, for any clock offset and
// any delay of reading. Not thread-safe.

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tokens/apply.hpp"
#include "tokens/checkpoints.hpp"
#include "tokens/lease_ends.hpp"
#include "tokens/limiter_use.hpp"
#include "tokens/member_settings.hpp"

namespace turnstile::tokens {

class Member {
 public:
  enum class Phase : std::uint8_t { joining, joined, halted, left };

  explicit Member(MemberSettings settings);

  // --- inputs ---
  /// Declares a limiter that this process uses, with its configuration. `reserve` is this member's part of `set_aside`.
  /// `outlives_fence`: the limiter also serves calls that no fence of the database rejects. Once set, it stays set.
  void declare(const std::string& limiter, Count limit, bool strict, Count set_aside = 0, Count reserve = 0,
               bool outlives_fence = false);
  /// The limiter is no longer used: no permit is in use, and no caller can reach its pool. A later declare() is for a
  /// new pool.
  void undeclare(const std::string& limiter, Micros now);
  void demand(const std::string& limiter, const Demand& demand);
  /// The total of permits that the pool has returned in this life.
  void given_back(const std::string& limiter, Count total);
  /// This process owns the partition now. `fence` is its epoch in the database; 0 without a database.
  void claim(const Partition& partition, std::uint64_t fence);
  /// Whether a claim has not been read back yet.
  [[nodiscard]] bool is_claiming() const;
  /// This process no longer owns these partitions, and nothing of them runs any more.
  void revoke(const std::vector<Partition>& partitions);
  /// Call it after each record was applied.
  void read(const State& state, Position position, const Event& event, const Effects& effects, Micros now);
  /// Call it often: at least ten times in a turn.
  void tick(const State& state, Micros now);
  /// An event may not have been written: continues in a new epoch.
  void sending_failed();
  /// Records that it should have read were deleted, and `state` comes from a newer snapshot. Its permits are lost, and
  /// it joins again in a new life.
  void begin_anew();
  /// The process may have been suspended: nothing starts until an event that it sends from here on is read back.
  void distrust(Micros now);
  /// Returns everything and ends.
  void leave();
  /// The log is damaged or cannot be understood. Permanent.
  void halt(std::string why);

  // --- outputs ---
  std::vector<Event> take_events();
  std::vector<Order> take_orders();
  /// Nothing may start at this time or later.
  [[nodiscard]] Micros open_until() const;
  /// From then on the log counts as silent: it should have read back what it has sent. Later than open_until() at rest.
  [[nodiscard]] Micros heard_until() const;
  /// See distrust(): nothing that it has sent since has been read back, but it has not waited for a lease yet.
  [[nodiscard]] bool is_catching_up(Micros now) const;
  /// Nothing may start on its reserve at this time or later, unless newer records are read.
  [[nodiscard]] Micros reserve_until() const;
  /// Permits of the limiter that it may use while the log is unavailable.
  [[nodiscard]] Count reserved(const State& state, const std::string& limiter) const;
  /// Whether the limiter is declared, and the domain refused it because it has the largest number of limiters already.
  [[nodiscard]] bool is_refused(const std::string& limiter) const;
  [[nodiscard]] Phase phase() const { return phase_; }
  [[nodiscard]] const std::string& why_halted() const { return why_halted_; }
  [[nodiscard]] bool was_rejected() const { return rejected_; }  ///< it is halted, and the log is not damaged
  [[nodiscard]] MemberId id() const { return id_; }
  [[nodiscard]] std::uint32_t epoch() const { return epoch_; }
  [[nodiscard]] Micros next_tick() const { return next_tick_; }  ///< by then, tick() must be called
  /// A position up to which two members have had the same state.
  [[nodiscard]] Position agreed() const { return checkpoints_.agreed(); }
  [[nodiscard]] std::uint64_t expired() const { return expired_; }  ///< how often other members expired it

 private:
  struct Sent {
    Event event;
    Micros at = 0;
  };

  void send(Micros now, decltype(Event::body) body);
  void begin_life();
  void forfeit(const std::string& name, Count total);
  void start_over(const std::string& name, LimiterUse& use);
  void let_go(const std::string& name, LimiterUse& use, Micros now);
  void retire(Micros now);
  void join(const State& state, Micros now);
  void keep(const State& state, Micros now);
  [[nodiscard]] bool may_rest(const State& state, Micros now) const;
  void read_own(const State& state, Position position, const Event& event, const Effects& effects, Micros now);
  void follow(const State& state, const std::string& name, LimiterUse& use);
  void see_what_is_gone(const State& state, const Event& event);
  void balance(const State& state, const std::string& name, LimiterUse& use, Micros now);
  bool is_idle(LimiterUse& use, bool contended, Micros now);
  void follow_turn(LimiterUse& use, bool starved, Micros now);
  void surrender(const std::string& name, LimiterUse& use, const Holding& holding, bool idle);
  bool is_wish_overdue(LimiterUse& use, bool others_wait, Micros now);
  void say_partitions(const State& state, Micros now);
  [[nodiscard]] bool is_revoking(const Partition& partition) const;
  void drain(const State& state, Micros now);
  void wake_at(Micros time) { next_tick_ = std::min(next_tick_, time); }

  const MemberSettings settings_;
  Phase phase_ = Phase::joining;
  std::string why_halted_;
  bool rejected_ = false, join_sent_ = false;
  MemberId id_ = 0;
  std::vector<MemberId> was_;  ///< earlier lives that may have a reserve
  std::uint32_t epoch_ = 0;
  std::uint64_t seq_ = 0;
  std::deque<Sent> unread_;  ///< sent and not read back, oldest first
  Micros renewed_at_ = 0;    ///< when the newest event that was read back was sent
  Micros trusted_from_ = 0;  ///< events sent earlier do not renew the lease
  Micros kept_at_ = 0;       ///< when the last Keep was sent
  bool rested_ = false;      ///< it has left out a Keep since it was last renewed
  Micros next_keep_ = 0, next_tick_ = 0;
  std::map<std::string, LimiterUse, std::less<>> uses_;
  std::vector<Event> events_;
  std::vector<Order> orders_;

  struct Owned {
    std::uint64_t fence = 0;
    bool said = false;
  };
  std::map<Partition, Owned> partitions_;
  std::vector<Partition> to_revoke_;
  bool drained_said_ = false;
  LeaseEnds lease_ends_;  ///< of the other members
  Checkpoints checkpoints_;
  std::uint64_t expired_ = 0;
};

}  // namespace turnstile::tokens
