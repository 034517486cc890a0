#pragma once
// One member of a domain, seen from within: what it writes to the token log, and how many permits its process may use. Pure: it
// is told what was read, what is wanted and what time it is, and answers with events and orders.
//
//                 read(), tick()                      take_events()  -> appended to the log
//   token log ──▶ state ──▶ Member ──▶
//                 demand(), given_back()              take_orders()  -> to the pools, which hand out permits to threads
//
// Its own deadline: a lease after it *sent* the last event that it has read back, less a margin. Others may expire it a lease
// after they *read* its last event, so its deadline passes first, whatever clocks say and however late anybody reads.
//
// Not thread-safe.

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tokens/state.hpp"

namespace turnstile::tokens {

/// Microseconds of the member's own steady clock.
using Micros = std::int64_t;

struct MemberSettings {
  Joined about;  ///< its lease, too
  /// A life's id, another one each time it is asked.
  std::function<MemberId()> next_id;
  /// Of what differs between two clocks over a lease: 1/8 covers two clocks that run 6 % apart.
  std::uint32_t margin_divisor = 8;
  /// A Keep every lease / this.
  std::uint32_t keeps_per_lease = 4;
  /// How long a permit is held before it goes to a member that has none, where there are fewer permits than members.
  Micros turn = 100'000;
  /// Permits that have been idle for this long are given back while others wait.
  Micros linger = 10'000;
  /// A digest of the state goes out with a Keep each time the log has passed a multiple of this.
  Position checkpoint_every = 4'096;

  [[nodiscard]] Micros lease() const { return Micros{about.lease_ms} * 1'000; }
};

/// What a process wants of one limiter now.
struct Demand {
  Count wants = 0;  ///< in use and waited for
  Count urgent = 0;
  Count least = 1;
  Count busy = 0;  ///< in use, also those that were lost meanwhile

  bool operator==(const Demand&) const = default;
};

/// To the pool of a limiter. Totals run from the start of the life.
struct Order {
  enum class Kind : std::uint8_t {
    open,       ///< `total` permits have been granted
    surrender,  ///< give back until `total` have been given back: the idle ones at once, the others as they end
    forfeit,    ///< all permits are lost; the totals start again at `total`, granted and given back
  };
  Kind kind;
  std::string limiter;
  Count total;

  bool operator==(const Order&) const = default;
};

class Member {
 public:
  enum class Phase : std::uint8_t { joining, joined, halted, left };

  explicit Member(MemberSettings settings);

  // --- what it is told ---
  /// A limiter that this process uses, and what its configuration says of it. `reserve`: of `set_aside`, for this member.
  /// `outlives_fence`: also for calls that no fence of the database refuses; from then on it is so.
  void declare(const std::string& limiter, Count limit, bool strict, Count set_aside = 0, Count reserve = 0,
               bool outlives_fence = false);
  /// Not used any more: nothing of it is in use, and nobody reaches its pool. If it is declared again, that is for a new pool.
  void undeclare(const std::string& limiter, Micros now);
  void demand(const std::string& limiter, const Demand& demand);
  /// Permits that its pool has surrendered, in all of this life.
  void given_back(const std::string& limiter, Count total);
  /// Partitions that are ours now; the fence is that of the database, 0 where there is none.
  void claim(const Partition& partition, std::uint64_t fence);
  /// Whether a claim has not been read back yet.
  [[nodiscard]] bool is_claiming() const;
  /// Partitions that were ours, and of which nothing runs any more.
  void revoke(const std::vector<Partition>& partitions);
  /// After each record was applied.
  void read(const State& state, Position position, const Event& event, const Effects& effects, Micros now);
  /// Often: at least ten times a turn.
  void tick(const State& state, Micros now);
  /// Something may not have been written: goes on in a new epoch.
  void sending_failed();
  /// Some records that it should have read are gone, and `state` is what a newer snapshot says: what it held is lost, and it joins
  /// again in a new life.
  void begin_anew();
  /// It may have slept: nothing starts until something that it sends from here on is read back.
  void distrust(Micros now);
  /// Gives everything back and ends.
  void leave();
  /// The log cannot be trusted, or is not understood. For good.
  void halt(std::string why);

  // --- what it says ---
  std::vector<Event> take_events();
  std::vector<Order> take_orders();
  /// Nothing may start at this time or after.
  [[nodiscard]] Micros open_until() const;
  /// Nothing may be started on its reserve at this time or after, as long as nothing newer is read.
  [[nodiscard]] Micros reserve_until() const;
  /// Permits of the limiter that it may use while it is cut off.
  [[nodiscard]] Count reserved(const State& state, const std::string& limiter) const;
  /// Declared, and not taken by the domain, since it has as many limiters as it can have.
  [[nodiscard]] bool is_refused(const std::string& limiter) const;
  [[nodiscard]] Phase phase() const { return phase_; }
  [[nodiscard]] const std::string& why_halted() const { return why_halted_; }
  [[nodiscard]] MemberId id() const { return id_; }
  [[nodiscard]] std::uint32_t epoch() const { return epoch_; }
  /// When tick() has something to do at the latest.
  [[nodiscard]] Micros next_tick() const { return next_tick_; }
  /// A position up to which two members have had the same state.
  [[nodiscard]] Position agreed() const { return agreed_; }
  /// How often it was expired by others.
  [[nodiscard]] std::uint64_t expired() const { return expired_; }

 private:
  struct Use {
    Count limit = 0;
    bool strict = false;
    bool outlives_fence = false;
    Count set_aside = 0;
    Count reserve = 0;
    Demand demand;
    Count peak = 0;  ///< of demand.wants since it was last said
    Count granted = 0;
    Count given_back = 0;
    Count surrender_to = 0;            ///< as ordered
    std::optional<Micros> turn_since;  ///< has held enough to use it since
    std::optional<Micros> idle_since;  ///< has held more than it wants since
    std::optional<Micros> fell_since;  ///< has wanted less than it said since
    bool known = false;                ///< the state has a holding of ours
    bool refused = false;              ///< it was said, and the state has none
    bool closing = false;              ///< not declared any more
    bool letting_go = false;  ///< said to be gone, and that not read back: nothing is opened, and nothing else is said
    std::uint32_t gone_in = 0;  ///< the epoch in which it was said
    bool turn_over = false;     ///< to be said with the next line
    Line said;
    [[nodiscard]] Count held() const { return granted - given_back; }
  };
  struct Sent {
    Event event;
    Micros at = 0;
  };
  struct Due {
    Micros at = 0;        ///< when its silence has lasted a lease, or when to say so (again)
    bool ranked = false;  ///< the older members had their chance to say so
  };

  void send(Micros now, decltype(Event::body) body);
  void begin_life();
  static void reset(Use& use);
  void forfeit(const std::string& name, Count total);
  void start_over(const std::string& name, Use& use);
  void let_go(const std::string& name, Use& use, Micros now);
  void join(Micros now);
  void keep(const State& state, Micros now);
  void read_own(const State& state, Position position, const Event& event, const Effects& effects, Micros now);
  void check_point(const State& state, Position position, const Event& event);
  void follow(const State& state, const std::string& name, Use& use);
  void see_what_is_gone(const State& state, const Event& event);
  void follow_all(const State& state);
  void balance(const State& state, const std::string& name, Use& use, Micros now);
  void say_partitions(const State& state, Micros now);
  [[nodiscard]] bool is_revoking(const Partition& partition) const;
  void drain(const State& state, Micros now);
  void watch(const State& state, Micros now);
  void expect(MemberId id, Due due);
  void forget(MemberId id);
  Line line(const std::string& name, Use& use, Count wants);
  [[nodiscard]] bool is_draining(const State& state) const;
  void wake_at(Micros time) { next_tick_ = std::min(next_tick_, time); }

  const MemberSettings settings_;
  Phase phase_ = Phase::joining;
  std::string why_halted_;
  MemberId id_ = 0;
  std::vector<MemberId> was_;  ///< lives before this one that may have reserved something
  std::uint32_t epoch_ = 0;
  std::uint64_t seq_ = 0;
  bool join_sent_ = false;
  std::deque<Sent> unread_;  ///< sent and not read back, oldest first
  Micros renewed_at_ = 0;    ///< when the newest event that was read back was sent
  Micros trusted_from_ = 0;  ///< what was sent before does not count
  Micros next_keep_ = 0;
  Micros next_tick_ = 0;

  std::map<std::string, Use, std::less<>> uses_;
  std::vector<Event> events_;
  std::vector<Order> orders_;

  struct Owned {
    std::uint64_t fence = 0;
    bool said = false;
  };
  std::map<Partition, Owned> partitions_;
  std::vector<Partition> to_revoke_;
  bool drained_said_ = false;

  std::map<MemberId, Due> due_;                      ///< of each other member
  std::set<std::pair<Micros, MemberId>> due_order_;  ///< the same, soonest first

  std::deque<Checkpoint> checkpoints_;  ///< of our own state, oldest first
  bool checkpoint_said_ = true;
  Position agreed_ = kNowhere;
  std::uint64_t expired_ = 0;
};

}  // namespace turnstile::tokens
