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
// any delay of reading.
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

#include "tokens/apply.hpp"

namespace turnstile::tokens {

/// Microseconds of the member's own steady clock.
using Micros = std::int64_t;

struct MemberSettings {
  Joined about;  ///< includes its lease
  /// Returns a new id of a life for each call.
  std::function<MemberId()> next_id;
  /// Safety margin: the member's own deadline is lease/8 early, which tolerates clocks that drift up to 6 % apart.
  std::uint32_t margin_divisor = 8;
  /// A Keep is sent every lease / this.
  std::uint32_t keeps_per_lease = 4;
  /// If there are fewer permits than members: how long a member holds a permit before it goes to a member without one.
  Micros turn = 100'000;
  /// Permits that were idle for this time are returned while others wait.
  Micros linger = 10'000;
  /// A digest of the state is sent with a Keep each time the log has passed a multiple of this.
  Position checkpoint_every = 4'096;

  [[nodiscard]] Micros lease() const { return Micros{about.lease_ms} * 1'000; }
};

/// A process's demand for a limiter now.
struct Demand {
  Count wants = 0;  ///< in use, and waited for
  Count urgent = 0;
  Count least = 1;
  Count busy = 0;  ///< in use, including permits that were lost since

  bool operator==(const Demand&) const = default;
};

/// An order to the pool of a limiter. Totals count from the start of the life.
struct Order {
  enum class Kind : std::uint8_t {
    open,       ///< `total` permits have been granted
    surrender,  ///< return permits until `total` are returned: idle ones at once, others when they are released
    forfeit,    ///< all permits are lost; both totals (granted and returned) start again at `total`
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
  /// Nothing may start on its reserve at this time or later, unless newer records are read.
  [[nodiscard]] Micros reserve_until() const;
  /// Permits of the limiter that it may use while the log is unavailable.
  [[nodiscard]] Count reserved(const State& state, const std::string& limiter) const;
  /// Whether the limiter is declared, and the domain refused it because it has the largest number of limiters already.
  [[nodiscard]] bool is_refused(const std::string& limiter) const;
  [[nodiscard]] Phase phase() const { return phase_; }
  [[nodiscard]] const std::string& why_halted() const { return why_halted_; }
  [[nodiscard]] MemberId id() const { return id_; }
  [[nodiscard]] std::uint32_t epoch() const { return epoch_; }
  /// The time by which tick() must be called.
  [[nodiscard]] Micros next_tick() const { return next_tick_; }
  /// A position up to which two members have had the same state.
  [[nodiscard]] Position agreed() const { return agreed_; }
  /// How often other members expired it.
  [[nodiscard]] std::uint64_t expired() const { return expired_; }

 private:
  struct Use {
    Count limit = 0;
    bool strict = false;
    bool outlives_fence = false;
    Count set_aside = 0;
    Count reserve = 0;
    Demand demand;
    Count peak = 0;  ///< the highest demand.wants since the last report
    Count granted = 0;
    Count given_back = 0;
    Count surrender_to = 0;            ///< as ordered
    std::optional<Micros> turn_since;  ///< since when it has held enough to use
    std::optional<Micros> idle_since;  ///< since when it has held more than it wants
    std::optional<Micros> fell_since;  ///< since when it has wanted less than it reported
    bool known = false;                ///< the state has a holding of this member
    bool refused = false;              ///< it was reported, and the state has no such holding
    bool closing = false;              ///< no longer declared
    /// Reported as gone, and not read back yet: nothing is opened, and nothing else is reported.
    bool letting_go = false;
    std::uint32_t gone_in = 0;  ///< the epoch in which it was reported as gone
    bool turn_over = false;     ///< to be reported with the next line
    Line said;
    [[nodiscard]] Count held() const { return granted - given_back; }
  };
  struct Sent {
    Event event;
    Micros at = 0;
  };
  struct Due {
    Micros at = 0;        ///< when its silence has lasted a lease, or when to propose its expiry (again)
    bool ranked = false;  ///< the older members had their chance to propose it
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
  std::vector<MemberId> was_;  ///< earlier lives that may have a reserve
  std::uint32_t epoch_ = 0;
  std::uint64_t seq_ = 0;
  bool join_sent_ = false;
  std::deque<Sent> unread_;  ///< sent and not read back, oldest first
  Micros renewed_at_ = 0;    ///< when the newest event that was read back was sent
  Micros trusted_from_ = 0;  ///< events sent earlier do not renew the lease
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

  std::map<MemberId, Due> due_;                      ///< for each other member
  std::set<std::pair<Micros, MemberId>> due_order_;  ///< the same, soonest first

  std::deque<Checkpoint> checkpoints_;  ///< of this member's state, oldest first
  bool checkpoint_said_ = true;
  Position agreed_ = kNowhere;
  std::uint64_t expired_ = 0;
};

}  // namespace turnstile::tokens
