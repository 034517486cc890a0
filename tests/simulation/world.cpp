#include "simulation/world.hpp"

#include <algorithm>
#include <numeric>

#include "simulation/chaos.hpp"
#include "simulation/describe.hpp"
#include "tokens/snapshot.hpp"
#include "tokens/wire.hpp"

namespace turnstile::simulation {

using namespace tokens;

namespace {

std::string text(Count number) { return std::to_string(number); }

/// Max-min fair shares of who wants so much, by handing out one after another to who has least for its weight.
std::vector<Count> fair_shares(Count capacity, const std::vector<Count>& wants, const std::vector<Count>& weights) {
  std::vector<Count> shares(wants.size());
  for (; capacity > 0; --capacity) {
    std::size_t poorest = wants.size();
    for (std::size_t i = 0; i < wants.size(); ++i) {
      if (shares[i] == wants[i]) continue;
      if (poorest == wants.size() || shares[i] * weights[poorest] < shares[poorest] * weights[i]) poorest = i;
    }
    if (poorest == wants.size()) break;
    ++shares[poorest];
  }
  return shares;
}

}  // namespace

World::World(const Plan& plan, Marks& marks, std::ostream* trace)
    : plan_(plan),
      marks_(marks),
      trace_(trace),
      random(plan.seed),
      checks(marks),
      log(*this),
      coordinator(*this, static_cast<int>(Random(plan.seed ^ 1).between(2, 5)), plan.seed ^ 3) {}

void World::say(const std::function<std::string()>& what) const {
  if (trace_ != nullptr) *trace_ << schedule.now() / kMillisecond << " ms  " << what() << '\n';
}

void World::run() {
  set_up();
  Chaos chaos(*this);
  schedule.after(0, [this] { coordinator.look(); });
  schedule.after(0, [&chaos] { chaos.go_on(); });
  schedule.run_until(plan_.chaos);
  heal();
  const Time lease = Time{sites_.front().lease_ms} * kMillisecond;
  schedule.run_until(schedule.now() + 5 * lease / 2 + 6 * kSecond);
  if (!version_moved_on()) must_be_fair();
  for (Process* process : living()) {
    for (auto& limiter : process->limiters()) limiter->want(0, 1);
  }
  schedule.run_until(schedule.now() + lease);
  must_be_quiet();
}

void World::set_up() {
  const bool database_used = random.chance(70);
  const bool eager = random.chance(50);
  const auto lease_ms = static_cast<std::uint32_t>(random.between(1'600, 2'600));
  const bool reserves = random.chance(20);
  std::vector<LimiterUse> uses;
  for (int i = random.chance(60) ? 1 : 2; i > 0; --i)
    uses.push_back({.name = "limiter-" + std::to_string(i),
                    .limit = static_cast<Count>(random.between(1, 9)),
                    .strict = random.chance(40)});
  for (LimiterUse& use : uses) use.set_aside = reserves ? use.limit / 3 : 0;
  const bool weighted = random.chance(20);
  const auto count = random.between(2, 4);
  const std::int64_t oldest = plan_.has(Fault::version_skew) ? random.between(0, count) : -1;
  for (int i = 0; i < count; ++i) {
    sites_.push_back({.name = "process-" + std::to_string(i),
                      .clock_ppm = plan_.has(Fault::drift) ? random.between(-50'000, 50'000) : 0,
                      .clock_offset = random.between(10, 1'000'000) * kSecond,
                      .lease_ms = lease_ms,
                      .weight = static_cast<std::uint32_t>(weighted ? random.between(1, 3) : 1),
                      .knows = oldest >= 0 && i != oldest ? kNewestVersion + 1 : kNewestVersion,
                      .in_group = i == 0 || random.chance(75),
                      .eager = eager,
                      .database = database_used,
                      .limiters = uses});
  }
  for (const Site& site : sites_) {
    for (auto& limiter : start(site).limiters()) limiter->want(static_cast<int>(random.between(0, 4)), 100);
  }
}

Process& World::start(const Site& site) {
  say([&] { return site.name + " starts"; });
  processes_.push_back(std::make_unique<Process>(*this, site));
  return *processes_.back();
}

std::vector<Process*> World::living() const {
  std::vector<Process*> all;
  for (const auto& process : processes_) {
    if (process->is_alive()) all.push_back(process.get());
  }
  return all;
}

// --- what a bystander sees ---------------------------------------------------------------------------------------------

void World::written(Position position) {
  const Event& event = log.at(position).event;
  const Effects& effects = checks.written(position, event);
  say([&] {
    return std::to_string(position) + " " + describe(event) + " -> " + std::string(to_text(effects.outcome));
  });
  nobody_ends_early(event, effects);
  if (std::holds_alternative<PartitionsClaimed>(event.body)) {
    for (const MemberId id : effects.reclaimed) {
      for (Process* process : living()) process->fenced(id, position);
    }
  }
  outside_holds();
  for (const auto& process : processes_) process->record_written();
}

/// Invariant 5.
void World::nobody_ends_early(const Event& event, const Effects& effects) const {
  if (!effects.ended || !std::holds_alternative<Expire>(event.body)) return;
  for (const Process* process : living()) {
    for (std::size_t life = 0; life < process->lives(); ++life) {
      if (process->life_id(life) != *effects.ended || process->local_now() >= process->deadline(life)) continue;
      throw Broken(process->name() + " was expired " +
                   std::to_string((process->deadline(life) - process->local_now()) / kMillisecond) +
                   " ms before its own deadline");
    }
  }
}

void World::handler_started(const std::string& name) const {
  const auto limiter = checks.state().limiters.find(name);
  Count running = 0;
  for (const auto& process : processes_) {
    if (!process->is_alive()) continue;
    for (const auto& workers : process->limiters()) {
      if (workers->use().name == name) running += workers->counted();
    }
  }
  const Count limit = limiter == checks.state().limiters.end() ? 0 : limiter->second.shared();
  const Count held = limiter == checks.state().limiters.end() ? 0 : limiter->second.held();
  if (running > std::max(limit, held))
    throw Broken("handlers with " + text(running) + " permits of " + name + " run, and the limit is " + text(limit));
  outside_holds();
}

/// What runs is covered by what the log says is held.
void World::outside_holds() const {
  for (const auto& process : processes_) {
    if (!process->is_alive()) continue;
    for (std::size_t life = 0; life < process->lives(); ++life) {
      for (const auto& workers : process->limiters()) {
        if (!workers->runs()) continue;
        const Count running = workers->counted(life);
        const Count held = checks.state().held(workers->use().name, process->life_id(life));
        if (running > held)
          throw Broken(process->name() + " runs handlers with " + text(running) + " permits of " + workers->use().name +
                       ", and holds " + text(held) + " as member " + text(process->life_id(life)));
      }
    }
  }
}

// --- after chaos -------------------------------------------------------------------------------------------------------

void World::heal() {
  say([] { return std::string("chaos is over"); });
  for (const Site& site : std::exchange(to_restart_, {})) start(site);
  if (living().empty()) start(sites_.front());
  for (Process* process : living()) {
    process->heal();
    for (auto& limiter : process->limiters()) {
      process->later(0, [&workers = *limiter, wanted = static_cast<int>(random.between(1, 4))] {
        workers.want(0, 1);
        workers.want(wanted, 50);
      });
    }
  }
  for (const LimiterUse& use : sites_.front().limiters)
    log.append(encode({.member = 0, .epoch = 0, .seq = 0, .body = LimitSet{use.name, use.limit, checks.state().last}}));
}

/// Invariants 7 and 8; and where all have what they can get, nothing is said but that they are there.
void World::must_be_fair() {
  std::vector<Process*> all;
  for (Process* process : living()) {
    if (process->has_work()) all.push_back(process);
  }
  if (all.empty()) throw Broken("nobody has work long after chaos was over");
  const auto& uses = sites_.front().limiters;
  std::map<std::pair<Process*, std::size_t>, std::uint64_t> finished;
  for (std::size_t which = 0; which < uses.size(); ++which) {
    std::vector<Count> wants, weights;
    for (Process* process : all) {
      wants.push_back(static_cast<Count>(process->limiters()[which]->wanted()));
      weights.push_back(process->site().weight);
      finished[{process, which}] = process->limiters()[which]->finished();
    }
    if (uses[which].shared() < all.size()) continue;  // turns are taken
    const std::vector<Count> shares = fair_shares(uses[which].shared(), wants, weights);
    Count total = 0;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const Count held = checks.state().held(uses[which].name, all[i]->member().id());
      // What cannot be divided may go to either of two.
      total += held;
      if (held + 1 < shares[i] || (held == 0 && shares[i] > 0))
        throw Broken(all[i]->name() + " wants " + text(wants[i]) + " permits of " + uses[which].name +
                     " and should hold " + text(shares[i]) + " of " + text(uses[which].shared()) + ", but holds " +
                     text(held));
    }
    if (const Count due = std::accumulate(shares.begin(), shares.end(), Count{0}); total != due)
      throw Broken(text(due) + " permits of " + uses[which].name + " could be held, but " + text(total) + " are");
  }
  const Position begin = log.end();
  schedule.run_until(schedule.now() + 4 * kSecond);
  const bool turns = std::any_of(uses.begin(), uses.end(), [&](const auto& use) { return use.shared() < all.size(); });
  for (Position position = begin; !turns && position < log.end(); ++position) {
    if (!std::holds_alternative<Keep>(log.at(position).event.body))
      throw Broken("nothing changes, and yet there is something to say: " + describe(log.at(position).event));
  }
  for (const auto& [of, before] : finished) {
    const auto& [process, which] = of;
    const Workers& workers = *process->limiters()[which];
    if (workers.wanted() > 0 && workers.finished() == before)
      throw Broken(process->name() + " has waited for a permit of " + uses[which].name + " for four seconds");
  }
}

void World::must_be_quiet() {
  const State& state = checks.state();
  for (Process* process : living()) {
    const Member& member = process->member();
    if (version_moved_on()) {
      if (member.phase() != Member::Phase::halted)
        throw Broken(process->name() + " goes on in a version that it does not know");
      mark(Mark::halted);
    } else if (member.phase() != Member::Phase::joined) {
      throw Broken(process->name() + " is no member long after chaos was over: " + member.why_halted());
    }
    if (member.agreed() > 0) mark(Mark::checkpoint_agreed);
    if (process->state() != state && process->state().last == state.last)
      throw Broken(process->name() + " has come to another state");
    if (process->state().last + 40 < state.last) throw Broken(process->name() + " has stopped reading");
    for (const auto& workers : process->limiters()) {
      if (workers->gate().in_use() > 0 || workers->gate().overstaying() > 0)
        throw Broken(process->name() + " has permits of " + workers->use().name + " in use, and nobody works");
    }
  }
  if (version_moved_on()) return;
  for (const auto& [name, limiter] : state.limiters) {
    if (limiter.held() > 0)
      throw Broken(text(limiter.held()) + " permits of " + name + " are held, and nobody wants any");
  }
  const auto again = restore(save(state));
  if (!again || *again != state) throw Broken("a snapshot of the last state is another state");
}

}  // namespace turnstile::simulation
