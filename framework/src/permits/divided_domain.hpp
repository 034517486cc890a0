#pragma once
// A token domain over a log that can be divided into parts (tokens/parts.hpp): a member in part 0, and one in each part
// whose limiters this process uses. A log of one part has only the first.
//
// After a division the mover, a thread of its own, moves the limiters of this process to their homes. Each part is opened
// on a further thread, which asks the brokers: while one part cannot be opened, nothing else waits. Thread-safe.

#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "permits/token_domain.hpp"
#include "support/periodic_thread.hpp"

namespace turnstile::detail {

class DividedDomain final : public TokenDomain, public std::enable_shared_from_this<DividedDomain> {
 public:
  using Members = std::vector<std::shared_ptr<DomainMember>>;

  /// For tests and the simulator, which run the members and the mover themselves.
  struct Hands {
    std::function<void(DomainMember& member, std::uint32_t part)> start;
    std::function<void()> move_soon;
  };

  /// Reads the newest snapshot of part 0 on the calling thread.
  DividedDomain(TokenLogParts open_log, const TokenSettings& settings, std::shared_ptr<spdlog::logger> logger,
                DomainEnvironment environment = DomainEnvironment::of_this_process(), Hands hands = {});
  ~DividedDomain() override;
  DividedDomain(const DividedDomain&) = delete;
  DividedDomain& operator=(const DividedDomain&) = delete;

  std::shared_ptr<ports::Limiter> open(const std::string& name, std::int64_t limit) override;
  std::shared_ptr<ports::Limiter> open_for_partitions(const std::string& name, std::int64_t limit) override;
  void on_claimed(const std::string& group, const std::string& store, const TopicPartition& at, Epoch epoch) override;
  void wait_until_claimed() override;
  void on_revoked(const std::string& group, std::span<const TopicPartition> partitions) override;
  PermitsView permits() const override;
  bool set_limit(const std::string& limiter, std::optional<std::int64_t> limit,
                 std::chrono::milliseconds timeout) override;
  bool wait_until_joined(std::chrono::milliseconds timeout) override;
  std::string halted() const override;
  LimitersHealth health() const override;
  std::optional<ports::TokenLogState> log() const override;

  /// A step of the mover. Returns whether it must run again although no record was read.
  bool move();
  /// The member of part 0, then those of the other parts.
  [[nodiscard]] Members members() const;

 private:
  using Part = std::uint32_t;
  using Member = std::shared_ptr<DomainMember>;
  /// A part that is being opened, or could not be opened.
  struct Opening {
    std::shared_future<Member> member{};  ///< not valid: it is not being opened now
    Code code{};                          ///< of the last failure
    std::string failure{};
    bool is_told = false;  ///< the failure
  };

  std::shared_ptr<ports::Limiter> open(const std::string& name, std::int64_t limit, bool outlives_fence);
  [[nodiscard]] ports::LimiterState state_of(const std::string& name, std::int64_t configured) const;
  [[nodiscard]] Member known(Part part) const;
  std::shared_future<Member> opening_of(Part part);
  Member member_of(Part part, std::optional<std::chrono::steady_clock::time_point> until = {});
  void enter(Part part, const Member& member);
  void fail(Part part, Code code, const std::string& why);
  bool move_limiters();
  void adopt(Part home, DomainMember& member);
  [[nodiscard]] std::string why_unopened() const;
  void look_soon();
  bool halt_all() const;
  void must_not_be_halted() const;
  PeriodicThread::Time step();

  const TokenLogParts open_log_;
  const TokenSettings settings_;
  const std::shared_ptr<spdlog::logger> logger_;
  const DomainEnvironment environment_;
  const Hands hands_;
  const RunLog run_log_;
  const std::shared_ptr<WakeUp<DividedDomain>> wake_up_ = std::make_shared<WakeUp<DividedDomain>>();

  mutable std::mutex routes_;  ///< protects where limiters are; held for a moment only
  NamedLimiters arriving_;     ///< they have left part 0, and have no new member yet

  /// All members get each claim, and in the same order. Held for a moment only: a rebalance waits for it.
  std::mutex claims_mutex_;
  std::map<std::pair<std::string, TopicPartition>, std::pair<std::string, Epoch>>
      claims_;  ///< by group; with the store

  mutable std::mutex mutex_;  ///< protects the following members; held for a moment only
  std::map<Part, Opening> openings_;
  std::map<Part, Member> others_;
  const Member first_;  ///< of part 0
  PeriodicThread mover_{[this] { return step(); }};
};

}  // namespace turnstile::detail
