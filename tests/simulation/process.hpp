#pragma once
// A process: the shipped DomainMember with its member and pools. The simulator drives it round by round in place of its
// thread. Around it is a simulated host, which claims and releases partitions, and runs handlers under limiters. Its
// clock runs fast or slow, and it can be paused at any time.
//
// The guarantees depend on a rule of the host (a test in planted_test.cpp breaks it):
//   Nothing starts on a partition before the host has read back its own claim.

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "permits/token_domain.hpp"
#include "tests/simulation/random.hpp"
#include "tests/simulation/schedule.hpp"
#include "tests/simulation/services.hpp"
#include "tests/simulation/workers.hpp"

namespace turnstile::simulation {

struct Site {
  std::string name;
  std::int64_t clock_ppm = 0;     ///< how much too fast it runs
  std::int64_t clock_offset = 0;  ///< no clock starts at zero
  std::uint32_t lease_ms = 2'000;
  std::uint32_t weight = 1;
  std::uint32_t knows = 1;
  bool knows_rest = true;
  std::uint32_t most_limiters = 0;  ///< 0: the default
  bool strict = false;
  std::uint32_t reserve = 0, reserve_for = 0, reserve_ms = 0;
  std::int64_t snapshot_every = 64;
  std::vector<int> groups;  ///< the groups of its partitions
  bool service = false;     ///< also calls limiters for work without a partition
  bool eager = true;        ///< every rebalance revokes all partitions first
  std::vector<LimiterUse> limiters;
};

class Process {
 public:
  struct Work {
    int group = -1;  ///< negative: work of a service
    int partition = -1;
    std::uint64_t fence = 0;
  };

  /// Starts from the newest snapshot, as soon as the log can be read.
  Process(World& world, Site site);
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  // --- what the world does to it ---
  void pause(Time length, bool holds_back, bool stops_clock);
  void cut(Time length, bool from_group_too);
  void kill();
  /// Ends in order: drains, reports it, and ends. If it is paused, it ends when it wakes up.
  void ask_to_leave();
  void heal();
  void assigned(int group, std::uint64_t generation, const std::vector<int>& partitions);
  void record_written();
  /// The database's fence has returned the permits of this life. The process reads of it at `position`.
  void fenced(tokens::MemberId id, tokens::Position position);

  // --- for its parts ---
  /// Runs the action after the delay, when the process is not paused. Never, if it has ended.
  void later(Time delay, Schedule::Action action);
  void ring() { loop_within(moment()); }
  /// There are more records to read.
  void read_on() { reads_on_ = true; }
  Random& random() { return random_; }
  [[nodiscard]] tokens::Micros local_now() const;
  /// `service`: work without a partition.
  [[nodiscard]] std::optional<Work> next_work(bool service);
  [[nodiscard]] bool has_work(bool service) const;
  /// Whether any part of it has work.
  [[nodiscard]] bool has_work() const;
  [[nodiscard]] Databases::Key key_of(const Work& work) const;
  /// The current life, as its pools know it. A new life is recorded.
  std::size_t life();
  [[nodiscard]] tokens::Micros deadline(std::size_t life) const { return lives_[life].deadline; }
  [[nodiscard]] tokens::Micros reserve_deadline() const { return reserve_deadline_; }
  /// Whether its clock has stopped for a while, so that this life may treat its lease as valid after its end. Its
  /// handlers then do not count.
  [[nodiscard]] bool is_late(std::size_t life) const { return lives_[life].clock_stopped; }
  [[nodiscard]] bool is_reserve_late() const { return stops_clock_ || clock_stood_ > 0; }
  [[nodiscard]] bool is_fenced_unknowingly(const std::string& limiter) const;
  /// Whether a fence returns the permits that this life holds of the limiter, by the log.
  [[nodiscard]] bool is_taken_by_fences(const std::string& limiter, tokens::MemberId id) const;
  [[nodiscard]] bool holds_back_what_it_sent() const { return is_paused() && holds_back_; }
  [[nodiscard]] std::shared_ptr<ports::Limiter> open(const LimiterUse& use, bool service);

  // --- its visible state ---
  [[nodiscard]] const std::string& name() const { return site_.name; }
  [[nodiscard]] const Site& site() const { return site_; }
  /// Whether it has begun to read the log. Otherwise it has no member and no state.
  [[nodiscard]] bool has_begun() const { return domain_ != nullptr; }
  [[nodiscard]] const tokens::Member& member() const { return domain_->member(); }
  [[nodiscard]] const tokens::State& state() const { return domain_->state(); }
  [[nodiscard]] bool is_alive() const { return alive_; }
  /// Whether it is alive and not about to leave.
  [[nodiscard]] bool stays() const { return alive_ && !asked_to_leave_; }
  [[nodiscard]] bool is_paused() const;
  [[nodiscard]] Time cut_until() const { return cut_until_; }
  [[nodiscard]] bool answers_the_group(int group) const;
  [[nodiscard]] std::vector<std::unique_ptr<Workers>>& limiters() { return limiters_; }
  [[nodiscard]] const std::vector<std::unique_ptr<Workers>>& limiters() const { return limiters_; }
  /// For each life of this process: its id, and the permits that its handlers count for.
  [[nodiscard]] std::size_t lives() const { return lives_.size(); }
  [[nodiscard]] tokens::MemberId life_id(std::size_t life) const { return lives_[life].id; }

 private:
  struct Life {
    tokens::MemberId id = 0;
    tokens::Micros deadline = 0;  ///< the latest deadline it had
    std::map<std::string, tokens::Position>
        fenced_at{};  ///< the position where a fence returned its permits of a limiter; it may not have read that
    bool clock_stopped = false;
  };
  struct Owned {
    tokens::Partition partition;
    bool assigned = false;
    bool give_up_first = false;  ///< although assigned, because it was revoked in between
    bool claimed = false;        ///< the member knows it
    bool is_ours = false;        ///< as far as it has read the log
    bool fencing = false;        ///< a call to the database is in progress
    std::uint64_t fence = 0;
    tokens::Micros confirmed_at = 0;
  };
  using Place = std::pair<int, int>;  ///< group, partition

  void begin();
  void leave();
  void loop();
  void loop_within(Time delay);
  void look_after_round();
  void settle_partitions();
  void fence_and_claim(Place place);
  [[nodiscard]] bool is_ours(Place place, const Owned& owned) const;
  [[nodiscard]] bool is_confirmed(const Owned& owned) const { return owned.is_ours && !member().is_claiming(); }
  [[nodiscard]] bool can_work_on(const Owned& owned) const;
  [[nodiscard]] bool runs_on(Place place) const;
  [[nodiscard]] bool runs() const;
  Time moment() { return random_.between(0, 2 * kMillisecond); }
  [[nodiscard]] Time true_delay(tokens::Micros local) const;

  World& world_;
  const Site site_;
  Random random_;
  ProcessLog* log_ = nullptr;  ///< belongs to the domain
  std::shared_ptr<detail::DomainMember> domain_;
  std::vector<std::unique_ptr<Workers>> limiters_;
  std::vector<Life> lives_;
  std::map<Place, Owned> partitions_;
  std::map<int, std::uint64_t> generations_;
  std::size_t next_place_ = 0;

  bool alive_ = true;
  bool asked_to_leave_ = false;
  bool leaving_ = false;
  bool reads_on_ = false;
  Time paused_since_ = 0;
  Time paused_until_ = 0;
  bool holds_back_ = false;
  bool stops_clock_ = false;  ///< of the pause
  Time clock_stood_ = 0;      ///< during past pauses
  Time cut_until_ = 0;
  bool cut_from_group_ = false;
  std::deque<Schedule::Action> missed_;  ///< while paused
  tokens::Micros reserve_deadline_ = 0;
  Time next_loop_ = 0;
};

}  // namespace turnstile::simulation
