#pragma once
// Named concurrency limits. A limiter is a named number of permits. A permit stands for a running handler or call.
// Implementations count within the process (make_local_limiters), over the members of a token domain in Kafka
// (turnstile/tokens.hpp, turnstile/kafka/limiters.hpp), or in PostgreSQL (turnstile/postgres/limiters.hpp).
//
// A permit keeps its limiter alive, and a limiter keeps its Limiters alive. They may be released in any order.

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <utility>

#include "turnstile/types.hpp"

namespace turnstile::ports {
class Limiter;
}

namespace turnstile {

/// Urgent requests go before normal ones, in this process and, if the limiter counts over a cluster, in all processes.
enum class Priority : std::uint8_t { normal, urgent };

/// A permit, or several permits that are acquired and released together. It releases itself. Move-only. Any thread may
/// release it, but only one thread may use the object at a time.
/// Releasing never waits for the network. It may call waiting callers on this thread.
class Permit {
 public:
  Permit() = default;
  /// For limiters. `token` is the limiter's own number for the permit.
  Permit(std::shared_ptr<ports::Limiter> from, std::uint64_t token, std::stop_token lost,
         std::int64_t count = 1) noexcept
      : from_(std::move(from)), token_(token), count_(count), lost_(std::move(lost)) {}
  /// The moved-from permit is empty.
  Permit(Permit&& other) noexcept = default;
  /// Releases this permit first. The moved-from permit is empty.
  Permit& operator=(Permit&& other) noexcept {
    if (this != &other) {
      give_back();
      from_ = std::move(other.from_);
      token_ = other.token_;
      count_ = other.count_;
      lost_ = std::move(other.lost_);
    }
    return *this;
  }
  ~Permit() { give_back(); }

  /// Releases the permit. Afterwards it is empty, and another call does nothing.
  void give_back() noexcept;
  /// False if it is empty: the permit could not be acquired.
  [[nodiscard]] explicit operator bool() const noexcept { return from_ != nullptr; }
  /// The limiter's own number for the permit. Permits that are held at the same time have different numbers.
  [[nodiscard]] std::uint64_t token() const noexcept { return token_; }
  /// The number of permits.
  [[nodiscard]] std::int64_t count() const noexcept { return count_; }
  /// Set if the permit is lost, or will be soon because its lease ends. The work must stop, because other work may run
  /// in its place. A limiter that counts within the process never sets it. A thread of the limiter sets it, so
  /// callbacks must not block.
  [[nodiscard]] const std::stop_token& lost() const noexcept { return lost_; }
  /// Whether the permit is still valid by the clock. A process that has just woken up learns it here before lost() is
  /// set. Call it before an action that cannot be undone.
  [[nodiscard]] bool holds() const noexcept;

 private:
  std::shared_ptr<ports::Limiter> from_;
  std::uint64_t token_ = 0;
  std::int64_t count_ = 1;
  std::stop_token lost_;
};

/// Whether the limiters can grant permits at all. ports::LimiterState shows the shortage of a single limiter.
struct LimitersHealth {
  /// The states.
  enum class State : std::uint8_t {
    working,
    /// Nothing starts until the log or database answers again; it recovers by itself. Of a divided token log: the same
    /// under the limits of one part, or that part has rejected this process until it is restarted.
    cut_off,
    halted,  ///< nothing starts in this process any more, permanently
  };
  State state = State::working;  ///< the state
  std::string why{};             ///< empty while working; halted: also what to do
};

}  // namespace turnstile

namespace turnstile::ports {

/// The state of a limiter, as this process sees it.
struct LimiterState {
  std::int64_t limit = 0;        ///< the limit in effect, over all counted processes; 0: paused
  std::int64_t in_use = 0;       ///< by this process
  std::int64_t most_in_use = 0;  ///< highest value of in_use so far
  std::int64_t held = 0;         ///< permits that this process has now, whether or not it uses them
  std::int64_t share = 0;        ///< how many it is entitled to while other processes want permits too
  std::int64_t waiting = 0;      ///< permits that this process waits for
};

/// The token log that limiters share, as this process sees it.
struct TokenLogState {
  bool available = false;  ///< whether permits can be granted: the process is a member, and reads back what it writes
  /// Until nothing may start any more, unless something that this process writes is read back; 0: nothing may start.
  std::chrono::milliseconds lease_left{0};
  std::optional<std::int64_t> unread{};  ///< records that are known to exist and were not read yet; absent: unknown
  std::chrono::milliseconds quiet{0};    ///< since the thread that reads it began its current round
  /// How often this process had to begin a new epoch, because it could not know whether something was written.
  std::int64_t epochs = 0;
};

/// Thread-safe. Limiters::open() creates it, never on the stack. No function waits or throws, except std::bad_alloc.
class Limiter : public std::enable_shared_from_this<Limiter> {
 public:
  virtual ~Limiter() = default;
  /// The name of the limit.
  [[nodiscard]] virtual const std::string& name() const noexcept = 0;
  /// A permit if it is available now; never waits. It goes before waiting callers. If the limit is shared with other
  /// processes, a failed call asks them for permits, so that a later call succeeds.
  virtual Permit try_acquire() = 0;
  /// Calls `wake` once when a permit may be available again, from any thread, possibly within this call. `wake` must be
  /// quick, and may call try_acquire(). It is also called if the caller has got a permit in the meantime.
  virtual void when_free(std::function<void()> wake) = 0;
  /// The limit in effect, and the permits in use.
  [[nodiscard]] virtual LimiterState state() const = 0;

  /// `count` permits if they are available now, and no earlier caller waits. The default implementation supports single
  /// permits only, and goes before waiting callers.
  virtual Permit try_acquire_fairly(std::int64_t count);
  /// Waits in line for `count` permits. `deliver` is called once, from any thread, possibly within this call. The
  /// returned function withdraws the request; false means that it was too late. A request that waits may keep the
  /// limiter and count as a wish, so withdraw it when nobody needs it any more. The default implementation supports
  /// single permits only, and ignores the priority; its requests end with the limiter.
  virtual std::function<bool()> acquire_later(std::int64_t count, Priority priority,
                                              std::function<void(Permit)> deliver);
  /// Whether several permits can be acquired together. If not, try_acquire_fairly() returns nothing for a count above
  /// 1, and acquire_later() must not be called with it.
  [[nodiscard]] virtual bool gives_several() const noexcept { return false; }
  /// A try failed, and the caller does not wait but may try again. If the limit is shared with other processes, this
  /// asks them for permits, and a try within the next half second finds them. try_acquire() does this itself.
  virtual void refused(std::int64_t /*count*/) {}
  /// While a caller waits, this process could use `at_once` permits. They are requested together instead of one by one.
  virtual void expect(std::int64_t /*at_once*/) {}

 protected:
  friend class turnstile::Permit;
  /// Takes a permit back. Called once for each.
  virtual void release(std::uint64_t token) noexcept = 0;
  /// Takes back several permits that were granted together.
  virtual void release_several(std::uint64_t token, std::int64_t /*count*/) noexcept { release(token); }
  /// False after its lease has ended by this process's clock.
  [[nodiscard]] virtual bool still_holds(std::uint64_t /*token*/) const noexcept { return true; }
};

/// Creates limiters by name; equal names share their permits. Thread-safe.
class Limiters {
 public:
  virtual ~Limiters() = default;
  /// Opens a limiter. Each call makes another user of the same permits. Waiting users in one process are served in
  /// turn, however many threads each of them has.
  /// Throws Error if the limit is below 1, or the name is known here with another limit. It also throws Error if the
  /// implementation cannot count the name or the limit. An implementation that joins a cluster with the first limiter
  /// throws BrokerError if it cannot join.
  virtual std::shared_ptr<Limiter> open(const std::string& name, std::int64_t limit) = 0;
  /// As open(), for work that runs only on partitions of on_claimed(). After the database has fenced this process, it
  /// rejects the effects of that work. Its permits may therefore be reassigned before the lease of this process ends.
  virtual std::shared_ptr<Limiter> open_for_partitions(const std::string& name, std::int64_t limit) {
    return open(name, limit);
  }
  /// This process now owns the partition for its consumer group. Limiters use it to take back the permits of the
  /// partition's dead owner. `epoch` is the one that `store` counts for this group and partition, already committed
  /// there; 0 without a store. The polling thread calls it, and the next function. It does not wait.
  virtual void on_claimed(const std::string& /*group*/, const std::string& /*store*/, const TopicPartition& /*at*/,
                          Epoch /*epoch*/) {}
  /// Waits until all members know what on_claimed() reported, or nothing can start here anyway; up to 10 s. Nothing may
  /// start on those partitions before: permits that this process held under earlier claims may have been reassigned.
  virtual void wait_until_claimed() {}
  /// Nothing of these partitions runs in this process any more, for this group.
  virtual void on_revoked(const std::string& /*group*/, std::span<const TopicPartition> /*partitions*/) {}
  /// Whether these limiters can grant permits at all.
  [[nodiscard]] virtual LimitersHealth health() const { return {}; }
  /// The token log. Absent: these limiters need none, or no limiter was opened yet.
  [[nodiscard]] virtual std::optional<TokenLogState> log() const { return {}; }
};

}  // namespace turnstile::ports

namespace turnstile {

inline bool Permit::holds() const noexcept { return from_ && !lost_.stop_requested() && from_->still_holds(token_); }
inline void Permit::give_back() noexcept {
  if (from_) std::exchange(from_, nullptr)->release_several(token_, count_);
}

/// Counts within this process. Limits are never lowered, there are no leases, and no permit is lost.
std::shared_ptr<ports::Limiters> make_local_limiters();

}  // namespace turnstile
