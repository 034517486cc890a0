#include "tests/simulation/world.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <set>

#include "tests/simulation/chaos.hpp"
#include "tests/simulation/describe.hpp"
#include "tokens/snapshot.hpp"
#include "tokens/wire.hpp"

namespace turnstile::simulation {

using namespace tokens;

namespace {

/// For each process, of each limiter.
constexpr std::uint32_t kMostReserve = 2;

/// The longest handlers while only time has to pass: half of a run's time was spent on short ones.
constexpr std::int64_t kUnhurried = 300;

std::string figure(Count number) { return std::to_string(number); }

/// Max-min fair shares: each permit goes to the process with the fewest for its weight.
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
    : plan_(plan), marks_(marks), trace_(trace), random(plan.seed), checks(marks), log(*this) {}

void World::say(const std::function<std::string()>& what) const {
  if (trace_ != nullptr) *trace_ << schedule.now() / kMillisecond << " ms  " << what() << '\n';
}

void World::run() {
  set_up();
  Chaos chaos(*this);
  for (const auto& coordinator : coordinators) schedule.after(0, [&group = *coordinator] { group.look(); });
  schedule.after(0, [&chaos] { chaos.go_on(); });
  schedule.run_until(plan_.chaos);
  heal();
  schedule.run_until(schedule.now() + settling());
  for (Process* process : living()) {
    for (auto& limiter : process->limiters()) limiter->take_up_to(longest_ms_);
  }
  if (wide_ && !version_moved_on()) must_progress();
  if (!version_moved_on()) must_be_fair();
  for (Process* process : living()) {
    for (auto& limiter : process->limiters()) limiter->want(0, 1, 0);
  }
  schedule.run_until(schedule.now() + Time{sites_.front().lease_ms} * kMillisecond);
  must_be_whole();
  must_be_quiet();
  if (random.chance(20) && !version_moved_on()) must_rest();
}

/// Until the consequences of chaos are over: leases end, claims are made again, and reserves are released.
Time World::settling() const {
  return 5 * Time{sites_.front().lease_ms} * kMillisecond / 2 + 6 * kSecond +
         Time{sites_.front().reserve_ms} * kMillisecond;
}

void World::set_up() {
  const auto partitions = static_cast<int>(random.between(2, 5));
  const bool database_used = random.chance(70);
  groups.push_back({.name = "billing", .store = database_used ? "db-1" : ""});
  if (random.chance(35)) groups.push_back({.name = "mail", .store = random.chance(70) ? groups[0].store : "db-2"});
  for (std::size_t group = 0; group < groups.size(); ++group)
    coordinators.push_back(
        std::make_unique<Coordinator>(*this, static_cast<int>(group), partitions, plan_.seed ^ (3 + group)));
  const bool eager = random.chance(50);
  const auto lease_ms = static_cast<std::uint32_t>(random.between(1'600, 2'600));
  const auto count = random.chance(10) ? random.between(5, 8) : random.between(2, 4);
  const bool reserves = random.chance(30);
  const auto reserve_for = static_cast<std::uint32_t>(reserves ? random.between(1, count) : 0);
  const auto most_aside = Count{kMostReserve} * reserve_for;
  std::vector<LimiterUse> uses;
  for (auto i = random.chance(60) ? 1 : random.chance(75) ? 2 : random.between(3, 5); i > 0; --i)
    uses.push_back({.name = "limiter-" + std::to_string(i),
                    .limit = most_aside + static_cast<Count>(random.between(1, 9)),
                    .set_aside = most_aside});
  const auto most_limiters = static_cast<std::uint32_t>(uses.size() > 1 && random.chance(20) ? uses.size() - 1 : 0);
  const bool strict = random.chance(40);
  const bool weighted = random.chance(20);
  Random of_builds(plan_.seed ^ 0x72657374);      // another stream: the rest of a seed's run stays as it was
  const bool before_rest = of_builds.chance(15);  // some processes are of a build before members could rest
  const std::int64_t oldest = plan_.has(Fault::version_skew) ? random.between(0, count) : -1;
  const std::int64_t snapshot_every = std::int64_t{8} << random.between(1, 3);
  for (int i = 0; i < count; ++i) {
    Site site{.name = "process-" + std::to_string(i),
              .clock_ppm = plan_.has(Fault::drift) ? random.between(-50'000, 50'000) : 0,
              .clock_offset = random.between(10, 1'000'000) * kSecond,
              .lease_ms = lease_ms,
              .weight = static_cast<std::uint32_t>(weighted ? random.between(1, 3) : 1),
              .knows = oldest >= 0 && i != oldest ? kNewestVersion + 1 : kNewestVersion,
              .knows_rest = !before_rest || of_builds.chance(50),
              .most_limiters = most_limiters,
              .strict = strict,
              .reserve = reserves ? static_cast<std::uint32_t>(random.between(1, kMostReserve)) : 0,
              .reserve_for = reserve_for,
              .reserve_ms = static_cast<std::uint32_t>(reserves ? random.between(1'500, 4'000) : 0),
              .snapshot_every = snapshot_every,
              .groups = {},
              .service = random.chance(20),
              .eager = eager,
              .limiters = uses};
    for (std::size_t group = 0; group < groups.size(); ++group) {
      if (i == 0 || random.chance(75)) site.groups.push_back(static_cast<int>(group));
    }
    sites_.push_back(std::move(site));
  }
  if (reserves) {
    for (Site& site : sites_) site.reserve_ms = sites_.front().reserve_ms;
  }
  for (const Site& site : sites_) {
    for (auto& limiter : start(site).limiters()) limiter->want(static_cast<int>(random.between(0, 4)), 100, 0);
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

// --- what an observer sees
// ---------------------------------------------------------------------------------------------

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
      if (process->life_id(life) != *effects.ended || process->is_late(life) ||
          process->local_now() >= process->deadline(life))
        continue;
      throw Broken(process->name() + " was expired " +
                   std::to_string((process->deadline(life) - process->local_now()) / kMillisecond) +
                   " ms before its own deadline");
    }
  }
}

void World::handler_started(const std::string& name) const {
  const auto limiter = checks.state().limiters.find(name);
  Count running = 0, on_reserve = 0;
  for (const auto& process : processes_) {
    if (!process->is_alive()) continue;
    for (const auto& workers : process->limiters()) {
      if (workers->use().name != name) continue;
      running += workers->counted();
      on_reserve += workers->counted_on_reserve();
    }
  }
  const bool known = limiter != checks.state().limiters.end();
  const Count shared = known ? limiter->second.shared() : 0;
  const Count held = known ? limiter->second.held() : 0;
  if (running > std::max(shared, held))
    throw Broken("handlers with " + figure(running) + " permits of " + name + " run, and the limit is " +
                 figure(shared));
  if (const Count most = known ? std::max(limiter->second.limit(), held + limiter->second.reserved) : 0;
      running + on_reserve > most)
    throw Broken("handlers with " + figure(running) + " permits of " + name + " and " + figure(on_reserve) +
                 " of its reserve run, and the limit is " + figure(most));
  outside_holds();
}

/// The log's held and reserved permits cover all running handlers.
void World::outside_holds() const {
  for (const auto& process : processes_) {
    if (!process->is_alive()) continue;
    for (const LimiterUse& use : process->site().limiters) {
      Count reserved = 0, on_reserve = 0;
      for (std::size_t life = 0; life < process->lives(); ++life) {
        const MemberId id = process->life_id(life);
        Count running = 0;
        for (const auto& workers : process->limiters()) {
          if (workers->use().name != use.name) continue;
          running += workers->counted(life);
          if (life == 0) on_reserve += workers->counted_on_reserve();
        }
        const Count held = running > 0 ? checks.state().held(use.name, id) : 0;
        if (running > held)
          throw Broken(process->name() + " runs handlers with " + figure(running) + " permits of " + use.name +
                       ", and holds " + figure(held) + " as member " + figure(id));
        if (on_reserve > 0) reserved += checks.state().reserved(use.name, id);
      }
      if (on_reserve > reserved)
        throw Broken(process->name() + " runs handlers with " + figure(on_reserve) + " permits of the reserve of " +
                     use.name + ", and has reserved " + figure(reserved));
    }
  }
}

// --- after chaos -----------------------------------------------------------------------------------------------------

void World::heal() {
  say([] { return std::string("chaos is over"); });
  for (const Site& site : std::exchange(to_restart_, {})) start(site);
  const auto all = living();
  if (std::none_of(all.begin(), all.end(), [](const Process* process) { return process->stays(); }))
    start(sites_.front());
  wide_ = random.chance(50);
  if (wide_) longest_ms_ = std::array<std::int64_t, 4>{10, 100, 700, 3'000}[random.index(random.chance(15) ? 4 : 3)];
  for (Process* process : living()) {
    process->heal();
    // Some want one permit, some want all, and some want both at times.
    const int wide = wide_ ? std::array{0, 50, 100}[random.index(3)] : 0;
    for (auto& limiter : process->limiters()) {
      process->later(0, [this, &workers = *limiter, wide, wanted = static_cast<int>(random.between(1, wide_ ? 3 : 4))] {
        workers.want(0, 1, 0);
        workers.want(wanted, std::max(longest_ms_, kUnhurried), wide);
      });
    }
  }
  for (const LimiterUse& use : sites_.front().limiters)
    log.append(encode({.member = 0, .epoch = 0, .seq = 0, .body = LimitSet{use.name, use.limit, checks.state().last}}));
}

Count World::shared(const std::string& limiter) const {
  const auto known = checks.state().limiters.find(limiter);
  return known == checks.state().limiters.end() ? 0 : known->second.shared();
}

/// Every waiting request is served in the end: after all requests that may stand before it, each with its longest
/// handler and a turn.
void World::must_progress() {
  mark(Mark::waited_wide);
  const auto all = living();
  std::int64_t requests = 0;
  for (Process* process : all) {
    int most = 0;
    for (const auto& workers : process->limiters()) most += workers->wanted();
    requests += most;
  }
  const Time bound = 3 * requests * (longest_ms_ + 200) * kMillisecond + 2 * kSecond;
  const auto longest_waiting = [&](Time since) -> const Workers* {
    for (Process* process : all) {
      if (!process->is_alive()) continue;
      for (const auto& workers : process->limiters()) {
        if (workers->is_served() && workers->waits_since() <= since) return workers.get();
      }
    }
    return nullptr;
  };
  // The requests that wait now are served, and then those that wait then.
  for (int again = 0; again < 3; ++again) {
    const Time since = schedule.now();
    while (longest_waiting(since) != nullptr && schedule.now() < since + bound)
      schedule.run_until(schedule.now() + kSecond / 2);
    if (const Workers* starved = longest_waiting(since))
      throw Broken(starved->process().name() + " has waited for permits of " + starved->use().name + " for " +
                   std::to_string((schedule.now() - starved->waits_since()) / kMillisecond) +
                   " ms, and no handler takes longer than " + std::to_string(longest_ms_));
  }
  must_not_withhold();
  for (Process* process : all) {
    for (auto& limiter : process->limiters()) {
      process->later(0, [&workers = *limiter, wanted = limiter->wanted()] {
        workers.want(0, 1, 0);
        workers.want(wanted, 50, 0);
      });
    }
  }
  schedule.run_until(schedule.now() + longest_ms_ * kMillisecond + Time{sites_.front().lease_ms} * kMillisecond);
}

/// A process requests all the permits that another's handlers use, and withdraws the request. After a turn they belong
/// to the other process again.
void World::must_not_withhold() {
  std::vector<Workers*> able;
  const LimiterUse& use = sites_.front().limiters[random.index(sites_.front().limiters.size())];
  for (Process* process : living()) {
    const auto has_it = [&](const auto& workers) { return workers->use().name == use.name && workers->is_served(); };
    const auto found = std::find_if(process->limiters().begin(), process->limiters().end(), has_it);
    if (found != process->limiters().end()) able.push_back(found->get());
  }
  const Count most = shared(use.name);
  if (able.size() < 2 || most < 2 || most > 10) return;
  Workers& asks = *able.front();
  Workers& works = *able.back();
  const auto let = [&](Workers& workers, int count, std::int64_t longest_ms, int wide) {
    workers.process().later(0, [=, &workers] { workers.want(count, longest_ms, wide); });
  };
  const auto run_for = [&](std::int64_t ms) { schedule.run_until(schedule.now() + ms * kMillisecond); };
  std::vector<std::pair<Workers*, int>> before;
  for (Process* process : living()) {
    for (auto& workers : process->limiters()) {
      before.emplace_back(workers.get(), workers->wanted());
      let(*workers, 0, 1, 0);
    }
  }
  run_for(longest_ms_ + 300);
  let(works, static_cast<int>(most), 600, 0);
  run_for(120);
  const auto held = [&] { return checks.state().held(use.name, works.process().member().id()); };
  const bool had_all = held() == most;
  let(asks, 1, 50, 100);
  run_for(60);  // none of those handlers has ended yet
  if (had_all && !asks.runs()) {
    mark(Mark::took_a_wish_back);
    say([&] { return asks.process().name() + " takes its request for all of " + use.name + " back"; });
    let(asks, 0, 1, 0);
    run_for(300);
    if (held() < most)
      throw Broken(works.process().name() + " wants all " + figure(most) + " permits of " + use.name + " and holds " +
                   figure(held()) + ", although nobody else has wanted any for 300 ms");
  }
  for (const auto& [workers, wanted] : before) let(*workers, wanted, 50, 0);
}

/// Invariants 7 and 8. If all have the permits that they can get, members write only that they are alive.
void World::must_be_fair() {
  std::vector<Process*> all;
  for (Process* process : living()) {
    if (!process->has_begun()) throw Broken(process->name() + " has not begun long after chaos was over");
    if (process->has_work()) all.push_back(process);
  }
  if (all.empty()) throw Broken("nobody has work long after chaos was over");
  const auto& uses = sites_.front().limiters;
  std::map<const Workers*, std::uint64_t> finished;
  for (Process* process : all) {
    for (const auto& workers : process->limiters()) finished[workers.get()] = workers->finished();
  }
  for (const LimiterUse& use : uses) {
    std::vector<Process*> wanting;
    std::vector<Count> wants, weights;
    for (Process* process : all) {
      Count wanted = 0;
      for (const auto& workers : process->limiters()) {
        if (workers->use().name == use.name && workers->is_served()) wanted += static_cast<Count>(workers->wanted());
      }
      if (wanted == 0) continue;
      wanting.push_back(process);
      wants.push_back(wanted);
      weights.push_back(process->site().weight);
    }
    if (shared(use.name) < all.size()) continue;  // members take turns
    const std::vector<Count> shares = fair_shares(shared(use.name), wants, weights);
    Count total = 0;
    for (std::size_t i = 0; i < wanting.size(); ++i) {
      const Count held = checks.state().held(use.name, wanting[i]->member().id());
      // A remainder that cannot be divided may go to either of two.
      total += held;
      if (held + 1 < shares[i] || (held == 0 && shares[i] > 0))
        throw Broken(wanting[i]->name() + " wants " + figure(wants[i]) + " permits of " + use.name +
                     " and should hold " + figure(shares[i]) + " of " + figure(shared(use.name)) + ", but holds " +
                     figure(held));
    }
    if (const Count due = std::accumulate(shares.begin(), shares.end(), Count{0}); total != due)
      throw Broken(figure(due) + " permits of " + use.name + " could be held, but " + figure(total) + " are");
  }
  const Position begin = log.end();
  const auto turns = [&] {
    return std::any_of(uses.begin(), uses.end(), [&](const auto& use) { return shared(use.name) < all.size(); });
  };
  // A member that died at rest is found dead late. Until then, what it was configured with counts.
  const bool turned = turns();
  schedule.run_until(schedule.now() + 4 * kSecond);
  if (!turned && !turns()) must_only_keep(begin);
  for (Process* process : all) {
    for (const auto& workers : process->limiters()) {
      if (workers->is_served() && workers->finished() == finished.at(workers.get()))
        throw Broken(process->name() + " has waited for a permit of " + workers->use().name + " for four seconds");
    }
  }
}

/// From this position on. A member that died at rest is found dead late, and its partitions are then claimed again.
void World::must_only_keep(Position from) const {
  std::set<MemberId> have_claimed;
  for (Position position = from; position < log.end(); ++position) {
    const Event& event = log.at(position).event;
    if (std::holds_alternative<Keep>(event.body)) continue;
    const auto* const expire = std::get_if<Expire>(&event.body);
    const auto all = living();
    const auto is_alive = [&](const Process* process) { return process->member().id() == expire->member; };
    if (expire != nullptr && std::none_of(all.begin(), all.end(), is_alive)) continue;
    if (std::holds_alternative<PartitionsClaimed>(event.body) && have_claimed.insert(event.member).second) continue;
    throw Broken("nothing changes, and yet there is something to say: " + describe(event));
  }
}

void World::must_be_quiet() {
  const State& state = checks.state();
  for (Process* process : living()) {
    if (!process->has_begun()) throw Broken(process->name() + " has not begun long after chaos was over");
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
      if (workers->in_use() > 0)
        throw Broken(process->name() + " has permits of " + workers->use().name + " in use, and nobody works");
    }
  }
  if (version_moved_on()) return;
  for (const auto& [name, limiter] : state.limiters) {
    if (limiter.held() > 0)
      throw Broken(figure(limiter.held()) + " permits of " + name + " are held, and nobody wants any");
  }
  const auto again = restore(save(state));
  if (!again || *again != state) throw Broken("a snapshot of the last state is another state");
}

/// Members that hold, want and reserve nothing seldom write, and none takes another for dead, or the log for silent.
void World::must_rest() {
  const Time lease = Time{sites_.front().lease_ms} * kMillisecond;
  const auto& members = checks.state().members;
  const bool all_know =
      std::all_of(members.begin(), members.end(), [](const auto& member) { return member.second.about.knows_rest; });
  schedule.run_until(schedule.now() + lease);
  const Position begin = log.end();
  schedule.run_until(schedule.now() + 4 * lease);
  must_only_keep(begin);
  std::map<MemberId, int> keeps, expires;
  for (Position position = begin; position < log.end(); ++position) {
    const Event& event = log.at(position).event;
    if (std::holds_alternative<Keep>(event.body)) ++keeps[event.member];
    if (std::holds_alternative<Expire>(event.body)) ++expires[event.member];
  }
  for (Process* process : living()) {
    const Member& member = process->member();
    if (member.heard_until() <= process->local_now())
      throw Broken(process->name() + " takes the log for silent, and rests");
    if (!all_know || !rests(checks.state(), member.id())) continue;
    mark(Mark::rested);
    // One in 2.5 leases, by clocks that differ by up to a tenth. What it says of others may wake it up.
    if (keeps[member.id()] > 2 + expires[member.id()])
      throw Broken(process->name() + " rests, and has written " + std::to_string(keeps[member.id()]) +
                   " Keeps within four leases");
  }
}

}  // namespace turnstile::simulation
