#pragma once
// A running member of a token domain. One thread reads the log, applies it, informs the member, and carries out its
// orders.
//
//   log ──records──▶ apply ──▶ member ──orders──▶ pools ──permits──▶ threads
//    ▲                           │                  │
//    └────────── events ─────────┘◀──── demand ─────┘

#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

#include "permits/domain_environment.hpp"
#include "permits/domain_reports.hpp"
#include "permits/domain_snapshots.hpp"
#include "permits/limit_changes.hpp"
#include "permits/loss_watch.hpp"
#include "permits/named_limiter.hpp"
#include "permits/part_openings.hpp"
#include "permits/permits_view.hpp"
#include "permits/same_log.hpp"
#include "support/run_log.hpp"
#include "tokens/member.hpp"
#include "turnstile/tokens.hpp"

namespace turnstile::detail {

/// Lives until its thread has ended. Thread-safe.
class DomainMember final : public std::enable_shared_from_this<DomainMember> {
 public:
  /// `first`: the state before the log's first record.
  DomainMember(std::unique_ptr<ports::TokenLog> log, const TokenSettings& settings,
               std::shared_ptr<spdlog::logger> logger,
               DomainEnvironment environment = DomainEnvironment::of_this_process(), const tokens::State& first = {});

  void start();
  void request_stop();
  /// Returns unused permits, and ends the thread.
  void stop();

  /// What a limiter shows of itself. It keeps the domain alive.
  using Look = std::function<ports::LimiterState()>;
  /// `outlives_fence`: the fences of on_claimed() do not reject the effects of its work. Null: this is the directory of
  /// a divided log, and the limiter is not used here.
  std::shared_ptr<ports::Limiter> open(const std::string& name, std::int64_t limit, bool outlives_fence, Look look);
  [[nodiscard]] ports::LimiterState state_of(const std::string& name, std::int64_t configured) const;
  void on_claimed(const std::string& group, const std::string& store, const TopicPartition& at, Epoch epoch);
  void wait_until_claimed(std::chrono::steady_clock::time_point until);
  void on_revoked(const std::string& group, std::span<const TopicPartition> partitions);
  [[nodiscard]] PartView permits() const;
  /// Absent: the limiter's home is another part.
  std::optional<bool> set_limit(const std::string& limiter, std::optional<std::int64_t> limit,
                                std::chrono::milliseconds timeout);
  bool wait_until_joined(std::chrono::milliseconds timeout);
  [[nodiscard]] std::string halted() const;
  /// As halted(). Empty if it concerns only this part: the domain rejected this member, and the log is not damaged.
  [[nodiscard]] std::string why_all_must_halt() const;
  /// It halts in its next round, because another part of its log is broken. It calls on_halted() as after any halt.
  void request_halt(const std::string& why);
  [[nodiscard]] LimitersHealth health() const;
  [[nodiscard]] std::optional<ports::TokenLogState> log_state() const;
  // --- for a log that is divided (tokens/parts.hpp) ---
  [[nodiscard]] std::uint32_t parts() const;  ///< as far as it has read
  [[nodiscard]] tokens::State first_state_of(std::uint32_t part) const;
  /// Of the directory: see tokens::moved_out().
  [[nodiscard]] std::shared_ptr<const tokens::Openings> openings();
  /// Of the directory: limiters of this process that have left it since the last call, with empty pools.
  NamedLimiters take_moved();
  /// Their new member, which does not use them yet.
  void adopt(NamedLimiters limiters);
  /// A part grants nothing before it is opened.
  [[nodiscard]] bool is_closed() const;
  void open_part(tokens::Opened opened);
  [[nodiscard]] bool uses(const std::string& limiter) const;
  /// Of the directory: the thread calls it after records were read, or limiters have left. Set it before start().
  void on_moved(std::function<void()> look) { on_moved_ = std::move(look); }
  /// The thread calls it once, at the end of a round. Set it before start().
  void on_halted(std::function<void()> tell) { on_halted_ = std::move(tell); }

  // --- for the simulator, which calls it in place of the thread ---
  void attach();
  void detach();
  /// A round: reads, applies, writes the member's events, and carries out its orders.
  void round();
  /// The time of the next round, if no record arrives before.
  [[nodiscard]] tokens::Micros due() const;
  void depart();  ///< ends as the thread does
  [[nodiscard]] const tokens::State& state() const { return state_; }
  [[nodiscard]] const tokens::Member& member() const { return member_; }

 private:
  void begin_anew(tokens::Micros now);
  void drop_unused(tokens::Micros now);
  void run();
  void step();
  void writing_failed(tokens::Micros now);
  void look_at_the_clock(tokens::Micros now);
  void take(const ports::TokenLog::Record& record, tokens::Micros now);
  std::vector<tokens::Order> pump(tokens::Micros now);
  void carry_out(std::vector<tokens::Order> orders);
  void report(tokens::Micros now, bool state_changed);
  void declare(const std::string& name, const NamedLimiter& named);
  void say_opened(tokens::Micros now);
  bool let_move();
  [[nodiscard]] tokens::Count set_aside() const;
  [[nodiscard]] tokens::Count reserve_of(const std::string& limiter) const;
  [[nodiscard]] tokens::Partition partition_of(const std::string& group, const std::string& store,
                                               const TopicPartition& at) const;
  void refuse_one_too_many(const std::string& name) const;
  [[nodiscard]] tokens::Micros now() const { return environment_.clock(); }
  [[nodiscard]] bool may_write(tokens::Micros now) const;
  void halt(const std::string& why, std::optional<Code> code = {});  ///< without a code it logs nothing
  bool halt_if_requested();
  /// The commands that an operator must repeat for a new topic. Empty: none.
  [[nodiscard]] std::string settings_at_stake() const;

  const TokenSettings settings_;
  const DomainEnvironment environment_;
  const RunLog run_log_;
  std::unique_ptr<ports::TokenLog> log_;  ///< used by the thread only, except wake()
  const std::shared_ptr<WakeUp<DomainMember>> wake_up_ = std::make_shared<WakeUp<DomainMember>>();
  DomainSnapshots snapshots_;
  SameLog same_log_;  ///< used by the thread only

  mutable std::mutex mutex_;  ///< protects the following members
  std::condition_variable changed_;
  DomainReports reports_;
  tokens::State state_;
  tokens::Member member_;
  NamedLimiters limiters_, moved_;
  bool limiters_changed_ = false, opened_said_ = false, stopping_ = false, heard_ = false;
  std::map<std::pair<std::string, TopicPartition>, tokens::Partition> claimed_;  ///< by group
  LimitChanges changes_;
  std::optional<tokens::Opened> to_open_;  ///< what opens this part
  PartOpenings openings_;
  tokens::Position moved_until_ = tokens::kNowhere, first_end_ = 0;  ///< as on_moved() was told; of the log, at first
  std::function<void()> on_moved_, on_halted_;
  tokens::Micros open_at_ = 0, last_step_ = 0, write_again_at_ = 0, write_delay_ = 0, begin_anew_at_ = 0;
  std::uint64_t epochs_ = 0;             ///< how often writing failed, and a new epoch began
  std::string behind_;                   ///< why it must begin anew from a snapshot; empty: no need
  tokens::Micros reserve_deadline_ = 0;  ///< the last one of this member; 0 after it was acted on
  bool obeyed_ = true;                   ///< the records that were read have reached the pools
  std::string halt_requested_;           ///< why; empty: it was not
  std::vector<MemberPool> pools_;        ///< the thread's copy of limiters_
  const std::shared_ptr<LossWatch> loss_;
  std::thread thread_;
};

}  // namespace turnstile::detail
