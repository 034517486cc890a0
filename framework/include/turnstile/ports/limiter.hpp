#pragma once
// So many at a time. A limiter is a named number of permits; a permit stands for one handler, or one call, that runs.
// Implementations count within the process (make_local_limiters), over the members of a token domain in Kafka
// (turnstile/tokens.hpp, turnstile/kafka/limiters.hpp), or in PostgreSQL (turnstile/postgres/limiters.hpp).
//
// A permit keeps its limiter, and a limiter the Limiters behind it: they may be let go of in any order.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <utility>

#include "turnstile/types.hpp"

namespace turnstile {

class Limiter;

/// Urgent ones go before the others, in this process and, where the limiter counts over a cluster, in all.
enum class Priority : std::uint8_t { normal, urgent };

/// One permit, or several that are taken and given back together; gives itself back. Move-only. May be given back on another
/// thread than it was taken on, but one object is one thread's at a time. Giving back never waits for the network, and may
/// call those who wait for a permit, on this thread.
class Permit {
 public:
  Permit() = default;
  /// By limiters. `token`: the limiter's own number for it.
  Permit(std::shared_ptr<Limiter> from, std::uint64_t token, std::stop_token lost, std::int64_t count = 1) noexcept
      : from_(std::move(from)), token_(token), count_(count), lost_(std::move(lost)) {}
  /// The other one is empty afterwards.
  Permit(Permit&& other) noexcept = default;
  /// Gives back what it had; the other one is empty afterwards.
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

  /// Once; afterwards it is empty, and doing it again does nothing.
  void give_back() noexcept;
  /// Whether it is one: what could not be had is an empty Permit.
  [[nodiscard]] explicit operator bool() const noexcept { return from_ != nullptr; }
  /// The limiter's own number for it; two that are out at once have different ones.
  [[nodiscard]] std::uint64_t token() const noexcept { return token_; }
  /// How many permits it stands for.
  [[nodiscard]] std::int64_t count() const noexcept { return count_; }
  /// Set when the permit is no longer ours, or will soon not be (its lease ends): what runs under it must stop, since others may
  /// run in its place. Never set by a limiter that counts within the process. Set by a thread of the limiter, which callbacks of it
  /// must not hold up.
  [[nodiscard]] const std::stop_token& lost() const noexcept { return lost_; }
  /// Whether it is ours still, by the clock: a process that has just woken finds out here before lost() is set. To be asked
  /// before what cannot be taken back.
  [[nodiscard]] bool holds() const noexcept;

 private:
  std::shared_ptr<Limiter> from_;
  std::uint64_t token_ = 0;
  std::int64_t count_ = 1;
  std::stop_token lost_;
};

/// How a limiter is, as this process sees it.
struct LimiterState {
  std::int64_t limit = 0;        ///< that holds now, over all processes that are counted; 0: paused
  std::int64_t in_use = 0;       ///< by this process
  std::int64_t most_in_use = 0;  ///< highest value of in_use so far
};

/// Thread-safe. Made by Limiters::open(), never on the stack. Nothing here waits or throws (but std::bad_alloc).
class Limiter : public std::enable_shared_from_this<Limiter> {
 public:
  virtual ~Limiter() = default;
  /// The name of the limit.
  [[nodiscard]] virtual const std::string& name() const noexcept = 0;
  /// A permit if one is to be had now; never waits. Passes those who wait. Where the limit is shared with other processes, a try
  /// that fails asks them for permits, so that a later one succeeds.
  virtual Permit try_acquire() = 0;
  /// Calls `wake` once a permit may be had again, from any thread, possibly within this call; it must be quick and may
  /// call try_acquire(). The one who asked and got a permit meanwhile is woken for nothing; that is allowed.
  virtual void when_free(std::function<void()> wake) = 0;
  /// The limit in effect, and what is in use.
  [[nodiscard]] virtual LimiterState state() const = 0;

  /// `count` permits if they are to be had now and nobody waits who came before. The default knows single permits, and passes
  /// those who wait.
  virtual Permit try_acquire_fairly(std::int64_t count);
  /// Stands in line for `count` permits; `deliver` is called once, from any thread, possibly within this call, unless the function
  /// that is returned withdraws it: false says that it was too late. The default knows single permits and no priority.
  virtual std::function<bool()> acquire_later(std::int64_t count, Priority priority,
                                              std::function<void(Permit)> deliver);
  /// Whether several permits may be taken together; else a count above 1 gets nothing from try_acquire_fairly(), and must not be
  /// asked for with acquire_later().
  [[nodiscard]] virtual bool gives_several() const noexcept { return false; }
  /// A try failed, and whoever tried does not wait, but may try again: where the limit is shared with other processes, asks them
  /// for permits, which a try within the next half second finds. try_acquire() does so by itself.
  virtual void refused(std::int64_t /*count*/) {}
  /// While anybody waits, this process could use so many at once: asked for together, not one by one.
  virtual void expect(std::int64_t /*at_once*/) {}

 protected:
  friend class Permit;
  /// Takes a permit back. Called once for each.
  virtual void release(std::uint64_t token) noexcept = 0;
  /// Takes several permits back that were given together.
  virtual void release_several(std::uint64_t token, std::int64_t /*count*/) noexcept { release(token); }
  /// False once its lease has ended by our own clock.
  [[nodiscard]] virtual bool still_holds(std::uint64_t /*token*/) const noexcept { return true; }
};

inline bool Permit::holds() const noexcept { return from_ && !lost_.stop_requested() && from_->still_holds(token_); }
inline void Permit::give_back() noexcept {
  if (from_) std::exchange(from_, nullptr)->release_several(token_, count_);
}

/// Whether limiters can give permits at all. What a single one is short of is in its LimiterState.
struct LimitersHealth {
  /// How they are.
  enum class State : std::uint8_t {
    working,
    cut_off,  ///< nothing starts until what counts them answers again; nobody has to do anything
    halted,   ///< nothing starts in this process any more, for good
  };
  State state = State::working;  ///< how they are
  std::string why{};             ///< empty while working; halted: also what to do
};

/// Gives out limiters by name: equal names, the same permits. Thread-safe.
class Limiters {
 public:
  virtual ~Limiters() = default;
  /// Throws Error when the limit is below 1, the name is known here with another limit, or either is more than the implementation
  /// can count; one that joins a cluster with the first limiter, BrokerError when it cannot.
  /// Each call gives another user of the same permits. Users in one process that wait are served in turn, however many threads
  /// each of them has.
  virtual std::shared_ptr<Limiter> open(const std::string& name, std::int64_t limit) = 0;
  /// As open(), for what runs only on partitions of on_claimed(). The database refuses its effects once it has fenced them, so its
  /// permits may go to others then, before the lease of this process ends.
  virtual std::shared_ptr<Limiter> open_for_partitions(const std::string& name, std::int64_t limit) {
    return open(name, limit);
  }
  /// A partition that this process owns now for its consumer group, for those who take back what its dead owner held. `epoch`: the one
  /// that `store` counts for this group and partition, already committed there; 0, and no store, where none does. Called on the polling
  /// thread, like the next; does not wait.
  virtual void on_claimed(const std::string& /*group*/, const std::string& /*store*/, const TopicPartition& /*at*/,
                          Epoch /*epoch*/) {}
  /// Waits until all know what on_claimed() said, or nothing can start here anyway; ten seconds at most. Nothing may start on those
  /// partitions before: what this process held under earlier claims may have been given to others.
  virtual void wait_until_claimed() {}
  /// Nothing of them runs in this process any more, for this group.
  virtual void on_revoked(const std::string& /*group*/, std::span<const TopicPartition> /*partitions*/) {}
  /// Whether these limiters can give permits at all.
  [[nodiscard]] virtual LimitersHealth health() const { return {}; }
};

/// Counts within this process: no limit that is lowered, no lease, nothing that is lost.
std::shared_ptr<Limiters> make_local_limiters();

}  // namespace turnstile
