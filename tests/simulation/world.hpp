#pragma once
// One run: some processes, the services that they use, chaos for a while, then health. It holds during all of it what checks.hpp
// says of the log, and what only a bystander can see:
//
//   outside   handlers that run never need more permits than the log says that their process holds, nor all together more than
//             the limit; those past their process's own deadline, and those that a fence keeps from committing, aside. Handlers on
//             the reserve of a process that is cut off are within what the log says that it has reserved
//   deadline  nobody is expired before its own deadline has passed
//   fence     permits come back by a fence only where the database refuses what still runs
//   progress  nobody waits for ever: not for one permit, and not for all of them, whatever others do
//   free      what somebody asked for and does not want any more is others' within a moment
//   healed    all members that want get their fair share, and turns are taken where there are too few
//   quiet     once nobody wants anything, nothing is held, and all have come to the same state

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "tests/simulation/checks.hpp"
#include "tests/simulation/plan.hpp"
#include "tests/simulation/process.hpp"
#include "tests/simulation/random.hpp"
#include "tests/simulation/schedule.hpp"
#include "tests/simulation/services.hpp"

namespace turnstile::simulation {

class World {
 public:
  /// `trace`: says what happens, if given.
  World(const Plan& plan, Marks& marks, std::ostream* trace);
  ~World() { is_over_ = true; }
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  /// Throws Broken.
  void run();

  // --- for the parts ---
  [[nodiscard]] const Plan& plan() const { return plan_; }
  /// It is being taken apart: permits that come back go to nobody.
  [[nodiscard]] bool is_over() const { return is_over_; }
  [[nodiscard]] bool chaotic() const { return schedule.now() < plan_.chaos; }
  [[nodiscard]] bool has(Fault fault) const { return chaotic() && plan_.has(fault); }
  [[nodiscard]] const std::vector<std::unique_ptr<Process>>& processes() const { return processes_; }
  void mark(Mark which) { ++marks_[static_cast<std::size_t>(which)]; }
  void say(const std::function<std::string()>& what) const;
  void written(tokens::Position position);
  void handler_started(const std::string& limiter) const;
  /// What was found where nothing may be thrown; the next loop of a process, or the end of the run, throws it.
  void note(const std::string& why) { broken_ = broken_.empty() ? why : broken_; }
  void must_be_whole() const {
    if (!broken_.empty()) throw Broken(broken_);
  }

  bool is_over_ = false;
  const Plan plan_;
  Marks& marks_;
  std::ostream* trace_;

 public:
  Random random;
  Schedule schedule;
  Checks checks;
  SharedLog log;
  Databases databases;
  std::vector<Group> groups;
  std::vector<std::unique_ptr<Coordinator>> coordinators;

 private:
  friend class Chaos;

  void set_up();
  Process& start(const Site& site);
  void heal();
  void must_progress();
  void must_not_withhold();
  void must_be_fair();
  void must_be_quiet();
  void nobody_ends_early(const tokens::Event& event, const tokens::Effects& effects) const;
  void outside_holds() const;
  [[nodiscard]] bool version_moved_on() const { return checks.state().version > tokens::kNewestVersion; }
  [[nodiscard]] std::vector<Process*> living() const;

  [[nodiscard]] tokens::Count shared(const std::string& limiter) const;
  [[nodiscard]] Time settling() const;

  std::string broken_;
  std::vector<Site> sites_;
  std::int64_t longest_ms_ = 50;  ///< of handlers, after chaos
  bool wide_ = false;             ///< after chaos, handlers ask for several permits at first
  std::vector<Site> to_restart_;
  std::vector<std::unique_ptr<Process>> processes_;
};

}  // namespace turnstile::simulation
