#pragma once
// A member of a token domain at work: one thread reads the log, applies it, tells the member, and carries out its orders.
//
//   log ──records──▶ apply ──▶ member ──orders──▶ pools ──permits──▶ threads
//    ▲                           │                  │
//    └────────── events ─────────┘◀──── demand ─────┘

#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "permits/permit_pool.hpp"
#include "support/run_log.hpp"
#include "turnstile/tokens.hpp"

namespace turnstile {

/// What a member takes from outside. The simulator has others.
struct DomainEnvironment {
  std::function<tokens::Micros()> clock;      ///< steady
  std::function<tokens::MemberId()> next_id;  ///< another one each time
  std::uint32_t knows = tokens::kNewestVersion;
  static DomainEnvironment of_this_process();
};

/// Lives until its thread has ended. Thread-safe.
class DomainMember final : public std::enable_shared_from_this<DomainMember> {
 public:
  DomainMember(std::unique_ptr<TokenLog> log, const TokenSettings& settings, std::shared_ptr<spdlog::logger> logger,
               DomainEnvironment environment = DomainEnvironment::of_this_process());

  void start();
  /// Gives back what is not in use, and ends the thread.
  void stop();

  /// The limiter keeps `owner`. `outlives_fence`: what runs under it is not refused by the fences of on_claimed().
  std::shared_ptr<Limiter> open(const std::string& name, std::int64_t limit, bool outlives_fence,
                                std::shared_ptr<void> owner);
  void on_claimed(const std::string& group, const std::string& store, const TopicPartition& at, Epoch epoch);
  void wait_until_claimed();
  void on_revoked(const std::string& group, std::span<const TopicPartition> partitions);
  [[nodiscard]] PermitsView permits() const;
  bool set_limit(const std::string& limiter, std::optional<std::int64_t> limit, std::chrono::milliseconds timeout);
  bool wait_until_joined(std::chrono::milliseconds timeout);
  [[nodiscard]] std::string halted() const;
  [[nodiscard]] LimitersHealth health() const;

  // --- for the simulator, which calls it in place of the thread ---
  void attach();
  void detach();
  /// One round: reads, applies, says what the member has to say, carries out its orders.
  void round();
  /// When the next round is due, if nothing is read before.
  [[nodiscard]] tokens::Micros due() const;
  /// Ends as the thread does.
  void depart();
  [[nodiscard]] const tokens::State& state() const { return state_; }
  [[nodiscard]] const tokens::Member& member() const { return member_; }

 private:
  struct Named {
    std::int64_t limit = 0;  ///< as this process says
    std::shared_ptr<PermitPool> pool;
    std::weak_ptr<int> users;     ///< kept by every limiter of the name, which its permits keep
    bool outlives_fence = false;  ///< of one of those that opened it
    std::int64_t told_limit = 0;  ///< the one that holds, as last logged
    bool told_refused = false;
  };
  /// Rings the thread; outlives the domain in the pools of permits that are still out.
  struct Bell {
    std::mutex mutex;
    DomainMember* domain = nullptr;
    std::atomic<bool> rung{false};
    void ring();
  };
  struct Change {
    std::string limiter;
    std::optional<std::int64_t> limit;
    tokens::Event event{};
    bool sent = false, done = false, not_allowed = false, over = false;
  };
  /// What the thread knows of a pool.
  struct Pool {
    std::string name;
    std::shared_ptr<PermitPool> pool;
    tokens::Count limit = tokens::kMostPermits;  ///< shared by all
    bool admits = false;                         ///< parties that outlive a fence
  };

  [[nodiscard]] tokens::State newest_state();
  void begin_anew(tokens::Micros now);
  void drop_unused(tokens::Micros now);
  void run();
  void step();
  void writing_failed(tokens::Micros now);
  void look_at_the_clock(tokens::Micros now);
  void take(const TokenLog::Record& record, tokens::Micros now);
  std::vector<tokens::Order> pump(tokens::Micros now);
  void carry_out(std::vector<tokens::Order> orders);
  void send_changes();
  void keep_snapshot();
  void tell_of_coordination(tokens::Micros now);
  void tell_of_limits();
  [[nodiscard]] tokens::Count set_aside() const;
  [[nodiscard]] tokens::Count reserve_of(const std::string& limiter) const;
  [[nodiscard]] tokens::Partition partition_of(const std::string& group, const std::string& store,
                                               const TopicPartition& at) const;
  void refuse_one_too_many(const std::string& name) const;
  [[nodiscard]] std::string too_many_limiters(const std::string& name, std::size_t most) const;
  [[nodiscard]] tokens::Micros now() const { return environment_.clock(); }
  [[nodiscard]] std::ptrdiff_t older_members() const;
  void halt(const std::string& why);
  /// What an operator must do again when the topic is made anew. Empty: nothing.
  [[nodiscard]] std::string settings_at_stake() const;

  const TokenSettings settings_;
  const DomainEnvironment environment_;
  const RunLog run_log_;
  std::unique_ptr<TokenLog> log_;  ///< the thread's, but for wake()
  const std::shared_ptr<Bell> bell_ = std::make_shared<Bell>();

  mutable std::mutex mutex_;  ///< of what follows
  std::condition_variable changed_;
  tokens::State state_;
  tokens::Member member_;
  std::map<std::string, Named> limiters_;
  bool limiters_changed_ = false;
  std::map<std::pair<std::string, TopicPartition>, tokens::Partition> claimed_;  ///< by group
  std::deque<std::shared_ptr<Change>> changes_;
  tokens::Micros last_step_ = 0;
  tokens::Position saved_ = tokens::kNowhere, trimmed_ = tokens::kNowhere;
  tokens::Micros write_again_at_ = 0, write_delay_ = 0;
  std::string told_failure_;
  std::uint64_t told_expired_ = 0;
  std::uint64_t told_of_reserve_ = 0;
  std::string behind_;  ///< why it must begin anew from a snapshot; empty: it need not
  tokens::Micros begin_anew_at_ = 0;
  std::string told_behind_;
  tokens::Micros reserve_deadline_ = 0;  ///< as deadline_
  bool was_open_ = false;
  tokens::Micros deadline_ = 0;  ///< our own, as of the last time that we had one; 0 once it was acted on
  bool obeyed_ = true;           ///< what was read has reached the pools
  bool stopping_ = false;
  std::vector<Pool> pools_;  ///< the thread's copy, of limiters_
  std::thread thread_;
};

}  // namespace turnstile
