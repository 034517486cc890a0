#pragma once
// The world of a divided token log (divided.hpp).

#include <bitset>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "permits/divided_domain.hpp"
#include "tests/simulation/checks.hpp"
#include "tests/simulation/divided.hpp"
#include "tests/simulation/random.hpp"
#include "tests/simulation/schedule.hpp"

namespace turnstile::simulation::divided {

enum class Fault : std::uint8_t {
  slow,
  lost_answers,
  late_retries,
  gaps,
  copies,
  cuts,
  pauses,
  crashes,
  departures,
  drift
};
inline constexpr std::size_t kFaults = 10;

struct Use {
  std::string name;
  tokens::Count limit = 0;
};

class DividedProcess;

/// A part as it is written, and the judge's state of it.
struct PartLog {
  std::vector<std::string> records;
  std::vector<std::string> snapshots;
  tokens::Position begin = 0;
  std::optional<tokens::State> state;
};

class DividedWorld {
 public:
  DividedWorld(std::uint64_t seed, DividedMarks& marks, std::ostream* trace);
  /// Throws Broken.
  void run();

  [[nodiscard]] bool has(Fault fault) const {
    return schedule.now() < chaos_ && faults_[static_cast<std::size_t>(fault)];
  }
  void append(std::uint32_t part, const std::string& bytes);
  PartLog& log(std::uint32_t part) { return logs_.at(part); }
  [[nodiscard]] tokens::Count limit_of(const std::string& name) const;
  [[nodiscard]] tokens::Count held(const std::string& name) const;
  void must_fit_outside() const;
  void note(const std::string& why) {
    say("BROKEN: " + why);
    broken_ = broken_.empty() ? why : broken_;
  }
  [[nodiscard]] std::uint64_t fence(int partition) const { return fences_.at(static_cast<std::size_t>(partition)); }
  std::uint64_t count_up(int partition) { return ++fences_.at(static_cast<std::size_t>(partition)); }
  [[nodiscard]] bool is_over() const { return over_; }
  void say(const std::string& what) const;

  Random random;
  Schedule schedule;
  DividedMarks& marks;
  std::vector<Use> uses;
  bool services = false;  ///< processes work without partitions

 private:
  void chaos();
  void divide();
  void copy();
  void reassign(int partition);
  DividedProcess& start();
  [[nodiscard]] std::vector<DividedProcess*> living() const;
  void must_have_moved() const;
  void must_progress();
  void must_be_quiet() const;
  void run_until(Time time);

  std::ostream* const trace_;
  Time chaos_ = 0, divide_at_ = 0;
  std::bitset<kFaults> faults_;
  std::uint32_t parts_ = 0;
  std::vector<PartLog> logs_;
  std::vector<std::uint64_t> fences_;
  std::vector<DividedProcess*> owners_;
  std::vector<std::unique_ptr<DividedProcess>> processes_;
  std::string broken_;
  bool over_ = false;
};

class PartOfProcess;

class DividedProcess {
 public:
  DividedProcess(DividedWorld& world, std::string name);
  ~DividedProcess();
  DividedProcess(const DividedProcess&) = delete;
  DividedProcess& operator=(const DividedProcess&) = delete;

  void want(int workers, std::int64_t longest_ms);
  void claim(int partition, std::uint64_t fence);
  void give_up(int partition);
  void pause(Time length);
  void cut(Time length) { cut_until_ = world_.schedule.now() + length; }
  void kill();
  void leave() { leaving_ = true; }
  void heal() { cut_until_ = 0; }
  void record_written(std::uint32_t part);

  [[nodiscard]] bool is_alive() const { return alive_; }
  [[nodiscard]] bool stays() const { return alive_ && !leaving_; }
  [[nodiscard]] bool is_cut() const { return world_.schedule.now() < cut_until_; }
  [[nodiscard]] tokens::Micros local_now() const;
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] std::uint64_t finished(const std::string& limiter) const;
  /// Permits of running handlers that count.
  [[nodiscard]] tokens::Count running(const std::string& limiter) const;
  [[nodiscard]] const std::map<std::uint32_t, std::unique_ptr<PartOfProcess>>& parts() const { return parts_; }
  /// Not while it is paused, and never after its end.
  void later(Time delay, Schedule::Action action);
  Random& random() { return random_; }
  DividedWorld& world() { return world_; }
  void settle();

 private:
  struct Handler {
    Permit permit{};
    std::uint32_t part = 0;
    std::size_t life = 0;
    int partition = -1;
    std::uint64_t fence = 0;
  };
  struct Workers {
    std::shared_ptr<ports::Limiter> limiter{};
    std::map<std::uint64_t, Handler> handlers{};
    std::map<std::uint64_t, std::function<bool()>> waiting{};
    std::uint64_t finished = 0;
  };
  struct Owned {
    std::uint64_t fence = 0;
    bool ends = false;
    Time ours_at = 0;  ///< when its claim was last in effect
  };

  void begin();
  void move_soon();
  void ask(const Use& use, Workers& workers);
  void run(const Use& use, Workers& workers, Permit permit);
  [[nodiscard]] bool is_ours(int partition, const Owned& owned) const;
  [[nodiscard]] std::vector<int> able() const;

  DividedWorld& world_;
  const std::string name_;
  Random random_;
  std::int64_t ppm_ = 0, offset_ = 0;
  std::shared_ptr<detail::DividedDomain> domain_;
  std::map<std::uint32_t, std::unique_ptr<PartOfProcess>> parts_;
  std::map<std::string, Workers> workers_;
  std::map<int, Owned> owned_;
  int wanted_ = 0;
  std::int64_t longest_ms_ = 50;
  std::uint64_t last_ = 0;
  bool alive_ = true, leaving_ = false, moving_ = false;
  Time paused_until_ = 0, cut_until_ = 0, opens_again_ = 0;
  std::deque<Schedule::Action> missed_;
};

/// A member of a process in a part, with its connection to the log.
class PartOfProcess {
 public:
  struct Life {
    tokens::MemberId id = 0;
    tokens::Micros deadline = 0;
  };
  PartOfProcess(DividedProcess& process, detail::DomainMember& member);
  ~PartOfProcess() { member_.detach(); }
  void loop_within(Time delay);
  /// The current life, with its latest deadline.
  std::size_t life();
  [[nodiscard]] const Life& life(std::size_t number) const { return lives_[number]; }
  [[nodiscard]] detail::DomainMember& member() const { return member_; }

 private:
  void loop();

  DividedProcess& process_;
  detail::DomainMember& member_;
  std::vector<Life> lives_;
  Time next_ = 0;
};

}  // namespace turnstile::simulation::divided
