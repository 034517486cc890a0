#pragma once
// One process: the shipped member and gates, and around them what a host does. It reads the log, calls the member's tick, sends
// what the member says, and keeps the gates as the member orders. Its clock runs fast or slow; it may be paused at any time.
//
// Rules of the host that the promises rest on (each is broken by a test in planted_test.cpp or explained where it is kept):
//   1. The gates are open for no longer than a second after the host's last loop, so that threads that wake from a pause find
//      them closed until the member knows of the pause.
//   2. Orders are carried out before the gates are opened for longer.
//   3. Nothing starts on a partition before the own claim of it has been read back.

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "simulation/random.hpp"
#include "simulation/schedule.hpp"
#include "simulation/services.hpp"
#include "simulation/workers.hpp"
#include "tokens/member.hpp"

namespace turnstile::simulation {

struct Site {
  std::string name;
  std::int64_t clock_ppm = 0;     ///< runs so much too fast
  std::int64_t clock_offset = 0;  ///< nobody's clock starts at zero
  std::uint32_t lease_ms = 2'000;
  std::uint32_t weight = 1;
  std::uint32_t knows = 1;
  bool in_group = true;  ///< false: a service without partitions
  bool eager = true;     ///< every rebalance takes all partitions away first
  bool database = true;  ///< fences its partitions
  std::vector<LimiterUse> limiters;
};

class Process {
 public:
  struct Work {
    int partition = -1;  ///< none: a service's
    std::uint64_t fence = 0;
  };

  /// Starts from the newest snapshot.
  Process(World& world, Site site);
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  // --- what happens to it ---
  void pause(Time length, bool holds_back);
  void cut(Time length, bool from_group_too);
  void kill();
  /// Ends as it should: drains, says so, and is gone.
  void leave();
  void heal();
  void assigned(std::uint64_t generation, const std::vector<int>& partitions);
  void sending_failed(tokens::MemberId member, std::uint32_t epoch);
  void record_written();
  /// The database's fence has taken back what this life held; it will read of it at `position`.
  void fenced(tokens::MemberId id, tokens::Position position);

  // --- for its parts ---
  /// Runs the action once the delay is over and the process is not paused; never, if it is gone.
  void later(Time delay, Schedule::Action action);
  void ring() { loop_within(moment()); }
  Random& random() { return random_; }
  [[nodiscard]] tokens::Micros local_now() const;
  [[nodiscard]] std::optional<Work> next_work();
  [[nodiscard]] bool has_work() const;
  [[nodiscard]] std::size_t life() const { return lives_.size() - 1; }
  [[nodiscard]] tokens::Micros deadline(std::size_t life) const { return lives_[life].deadline; }
  [[nodiscard]] bool is_fenced_unknowingly(const std::string& limiter) const;
  [[nodiscard]] bool holds_back_what_it_sent() const { return is_paused() && holds_back_; }

  // --- what can be seen of it ---
  [[nodiscard]] const std::string& name() const { return site_.name; }
  [[nodiscard]] const Site& site() const { return site_; }
  [[nodiscard]] const tokens::Member& member() const { return member_; }
  [[nodiscard]] const tokens::State& state() const { return state_; }
  [[nodiscard]] bool is_alive() const { return alive_; }
  [[nodiscard]] bool is_paused() const;
  [[nodiscard]] Time cut_until() const { return cut_until_; }
  [[nodiscard]] bool answers_the_group() const;
  [[nodiscard]] std::vector<std::unique_ptr<Workers>>& limiters() { return limiters_; }
  /// Of each life of this process: who it was, and how many permits its handlers count for.
  [[nodiscard]] std::size_t lives() const { return lives_.size(); }
  [[nodiscard]] tokens::MemberId life_id(std::size_t life) const { return lives_[life].id; }

 private:
  struct Life {
    tokens::MemberId id = 0;
    tokens::Micros deadline = 0;                    ///< the latest that it ever had
    tokens::Position fenced_at = tokens::kNowhere;  ///< by a record that it has not read
  };
  struct Owned {
    bool assigned = false;
    bool give_up_first = false;  ///< although assigned: it was taken away in between
    bool claimed = false;        ///< the member was told
    bool fencing = false;        ///< the database is being asked
    std::uint64_t fence = 0;
    tokens::Micros confirmed_at = 0;
  };

  void loop();
  void loop_within(Time delay);
  void read();
  void obey();
  void settle_partitions();
  void fence_and_claim(int partition);
  [[nodiscard]] bool is_confirmed(int partition, const Owned& owned) const;
  [[nodiscard]] bool runs_on(int partition) const;
  Time moment() { return random_.between(0, 2 * kMillisecond); }
  [[nodiscard]] Time true_delay(tokens::Micros local) const;

  World& world_;
  const Site site_;
  Random random_;
  tokens::State state_;
  tokens::Member member_;
  std::vector<std::unique_ptr<Workers>> limiters_;
  std::vector<Life> lives_;
  tokens::Micros cancelled_ = 0;  ///< the deadline after which the gates were told to cancel
  Writer writer_;
  std::map<int, Owned> partitions_;
  std::uint64_t generation_ = 0;
  std::size_t next_partition_ = 0;

  bool alive_ = true;
  bool leaving_ = false;
  Time paused_since_ = 0;
  Time paused_until_ = 0;
  bool holds_back_ = false;
  Time cut_until_ = 0;
  bool cut_from_group_ = false;
  std::deque<Schedule::Action> missed_;  ///< while paused
  tokens::Micros last_loop_ = 0;
  Time next_loop_ = 0;
};

}  // namespace turnstile::simulation
