#pragma once
// A run: some processes, the services that they use, chaos for a while, then health. During all of it, the invariants
// of checks.hpp about the log must be true, and these, which only an observer sees:
//
//   outside   Running handlers never need more permits than their process holds by the log, nor together more than the
//             limit. Handlers after their process's own deadline, and handlers that a fence keeps from committing, do
//             not count. Handlers on the reserve of a process without the log stay within the reserve of the log.
//   deadline  No member is expired before its own deadline has passed.
//   fence     A fence returns permits only if the database rejects the handlers that still run.
//   progress  No request waits forever: neither for one permit, nor for all of them, whatever other processes do.
//   free      A withdrawn request leaves its permits to the others within a moment.
//   healed    All members with demand get their fair share, and take turns if there are too few permits.
//   quiet     Once no process wants anything, nothing is held, and all have reached the same state.

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
  /// If `trace` is given, the events are written to it.
  World(const Plan& plan, Marks& marks, std::ostream* trace);
  ~World() { is_over_ = true; }
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  /// Throws Broken.
  void run();

  // --- for the parts ---
  [[nodiscard]] const Plan& plan() const { return plan_; }
  /// The world is being destroyed: returned permits go to no process.
  [[nodiscard]] bool is_over() const { return is_over_; }
  [[nodiscard]] bool chaotic() const { return schedule.now() < plan_.chaos; }
  [[nodiscard]] bool has(Fault fault) const { return chaotic() && plan_.has(fault); }
  [[nodiscard]] const std::vector<std::unique_ptr<Process>>& processes() const { return processes_; }
  void mark(Mark which) { ++marks_[static_cast<std::size_t>(which)]; }
  void say(const std::function<std::string()>& what) const;
  void written(tokens::Position position);
  void handler_started(const std::string& limiter) const;
  /// A failure that was found where nothing may be thrown. The next loop of a process, or the end of the run, throws
  /// it.
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
  void must_rest();
  void must_only_keep(tokens::Position from) const;
  void nobody_ends_early(const tokens::Event& event, const tokens::Effects& effects) const;
  void outside_holds() const;
  [[nodiscard]] bool version_moved_on() const { return checks.state().version > tokens::kNewestVersion; }
  [[nodiscard]] std::vector<Process*> living() const;

  [[nodiscard]] tokens::Count shared(const std::string& limiter) const;
  [[nodiscard]] Time settling() const;

  std::string broken_;
  std::vector<Site> sites_;
  std::int64_t longest_ms_ = 50;  ///< of handlers, after chaos
  bool wide_ = false;             ///< after chaos, handlers at first request several permits
  std::vector<Site> to_restart_;
  std::vector<std::unique_ptr<Process>> processes_;
};

}  // namespace turnstile::simulation
