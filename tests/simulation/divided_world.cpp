#include "tests/simulation/divided_world.hpp"

#include <algorithm>

#include "tests/simulation/describe.hpp"
#include "tokens/parts.hpp"
#include "tokens/snapshot.hpp"
#include "tokens/wire.hpp"

namespace turnstile::simulation::divided {

using namespace tokens;

DividedWorld::DividedWorld(std::uint64_t seed, DividedMarks& of, std::ostream* trace)
    : random(seed), marks(of), trace_(trace) {
  Random plan(seed ^ 0x706172747300ULL);
  chaos_ = plan.between(3, 7) * kSecond;
  divide_at_ = plan.between(0, 4'000) * kMillisecond;
  const int kept = static_cast<int>(plan.between(10, 80));
  for (std::size_t fault = 0; fault < kFaults; ++fault) faults_[fault] = plan.chance(kept);
  parts_ = static_cast<std::uint32_t>(plan.between(2, 4));
  logs_.resize(parts_);
  logs_[0].state.emplace();
  services = plan.chance(40);
  fences_.resize(static_cast<std::size_t>(plan.between(2, 4)));
  owners_.resize(fences_.size());
  for (auto i = plan.between(1, 4); i > 0; --i)
    uses.push_back({.name = "limiter-" + std::to_string(i), .limit = static_cast<Count>(plan.between(1, 5))});
  for (auto i = plan.between(2, 4); i > 0; --i) start().want(static_cast<int>(random.between(0, 3)), 100);
}

void DividedWorld::say(const std::string& what) const {
  if (trace_ != nullptr) *trace_ << schedule.now() / kMillisecond << " ms  " << what << '\n';
}

DividedProcess& DividedWorld::start() {
  processes_.push_back(std::make_unique<DividedProcess>(*this, "process-" + std::to_string(processes_.size())));
  say(processes_.back()->name() + " starts");
  return *processes_.back();
}

std::vector<DividedProcess*> DividedWorld::living() const {
  std::vector<DividedProcess*> all;
  for (const auto& process : processes_) {
    if (process->is_alive()) all.push_back(process.get());
  }
  return all;
}

void DividedWorld::run_until(Time time) {
  schedule.run_until(time);
  if (!broken_.empty()) throw Broken(broken_);
}

void DividedWorld::run() {
  schedule.after(0, [this] { chaos(); });
  schedule.after(divide_at_, [this] { divide(); });
  run_until(chaos_);
  say("chaos is over");
  const auto left = living();
  if (std::none_of(left.begin(), left.end(), [](const DividedProcess* process) { return process->stays(); })) start();
  for (DividedProcess* process : living()) {
    process->heal();
    process->want(2, 60);
  }
  run_until(schedule.now() + 12 * kSecond);
  must_have_moved();
  must_progress();
  for (DividedProcess* process : living()) process->want(0, 1);
  run_until(schedule.now() + 4 * kSecond);
  must_be_quiet();
  over_ = true;
}

// --- chaos -----------------------------------------------------------------------------------------------------------

void DividedWorld::chaos() {
  if (!services) {
    for (std::size_t partition = 0; partition < owners_.size(); ++partition) {
      const DividedProcess* owner = owners_[partition];
      if (owner == nullptr || !owner->stays() || (schedule.now() < chaos_ && random.chance(4)))
        reassign(static_cast<int>(partition));
    }
  }
  schedule.after(random.between(5, 120) * kMillisecond, [this] { chaos(); });
  const auto all = living();
  if (schedule.now() >= chaos_ || all.empty()) return;
  DividedProcess& process = *all[random.index(all.size())];
  if (random.chance(40)) return process.want(static_cast<int>(random.between(0, 3)), random.chance(10) ? 2'500 : 150);
  const auto fault = static_cast<Fault>(random.index(kFaults));
  if (!has(fault)) return;
  switch (fault) {
    case Fault::pauses: {
      const Time length = random.chance(50) ? random.between(10, 900) : random.between(900, 4'000);
      say(process.name() + " is paused for " + std::to_string(length) + " ms");
      return process.pause(length * kMillisecond);
    }
    case Fault::cuts: return process.cut(random.between(50, 4'000) * kMillisecond);
    case Fault::crashes:
    case Fault::departures:
      if (!random.chance(30)) return;
      say(process.name() + (fault == Fault::crashes ? " dies" : " leaves"));
      if (fault == Fault::crashes) process.kill();
      else process.leave();
      schedule.after(random.between(10, 2'500) * kMillisecond, [this] { start().want(2, 100); });
      return;
    case Fault::copies: return copy();
    default: return;  // in PartConnection
  }
}

/// A tool, or Kafka, writes a record again: into its part, or into another one after the Joined of its member.
void DividedWorld::copy() {
  const auto part = static_cast<std::uint32_t>(random.index(logs_.size()));
  const auto& records = logs_[part].records;
  if (records.empty()) return;
  const std::string copied = records[random.index(records.size())];
  if (!is_directory(*logs_[0].state) || random.chance(50)) return append(part, copied);
  const auto into = static_cast<std::uint32_t>(random.index(logs_.size()));
  const auto joined = std::find_if(records.begin(), records.end(), [&](const std::string& bytes) {
    const Event event = decode(bytes);
    return event.member == decode(copied).member && std::holds_alternative<Joined>(event.body);
  });
  if (joined != records.end()) append(into, std::string(*joined));
  append(into, copied);
}

/// The database counts up the fence before the new owner starts anything. The old owner hears of it later.
void DividedWorld::reassign(int partition) {
  const auto at = static_cast<std::size_t>(partition);
  std::vector<DividedProcess*> able;
  for (DividedProcess* process : living()) {
    if (process->stays() && process != owners_[at]) able.push_back(process);
  }
  if (able.empty()) return;
  if (owners_[at] != nullptr && owners_[at]->is_alive())
    owners_[at]->later(random.between(1, 1'500) * kMillisecond, [this, old = owners_[at], partition, at] {
      if (owners_[at] != old) old->give_up(partition);  // otherwise it has got it back
    });
  DividedProcess* next = owners_[at] = able[random.index(able.size())];
  next->later(random.between(1, 50) * kMillisecond, [this, next, partition, at] {
    if (owners_[at] == next) next->claim(partition, ++fences_[at]);
  });
}

/// By an operator, who says it again until it is read.
void DividedWorld::divide() {
  const State& state = *logs_[0].state;
  if (state.parts > 1) return;
  const auto say_it = [&](decltype(Event::body) body) {
    append(0, encode({.member = random.next() | 1, .epoch = 1, .seq = 1, .body = std::move(body)}));
  };
  if (random.chance(30)) say_it(LimitSet{uses.front().name, static_cast<Count>(random.between(1, 3)), state.last});
  if (state.version < kDividedVersion) say_it(VersionSet{kDividedVersion});
  else if (!state.members.empty()) {
    const auto& [witness, member] = *state.members.begin();
    say_it(Divided{parts_, random.next(), random.chance(90) ? witness : random.next(), member.joined_at});
  }
  schedule.after(random.between(1, 300) * kMillisecond, [this] { divide(); });
}

// --- the judge -------------------------------------------------------------------------------------------------------

Count DividedWorld::held(const std::string& name) const {
  Count sum = 0;
  for (const PartLog& log : logs_) {
    if (!log.state) continue;
    const auto limiter = log.state->limiters.find(name);
    if (limiter != log.state->limiters.end()) sum += limiter->second.held();
  }
  return sum;
}

Count DividedWorld::limit_of(const std::string& name) const {
  Count limit = 0;
  for (const PartLog& log : logs_) {
    if (!log.state) continue;
    const auto limiter = log.state->limiters.find(name);
    if (limiter != log.state->limiters.end() && (limit == 0 || !log.state->closed)) limit = limiter->second.limit();
  }
  return limit;
}

void DividedWorld::append(std::uint32_t part, const std::string& bytes) {
  PartLog& log = logs_.at(part);
  const Event event = decode(bytes);
  log.records.push_back(bytes);  // `bytes` may be one of them
  if (!log.state) log.state = first_state(*logs_[0].state, part);
  std::map<std::string, Count> before;
  for (const Use& use : uses) before[use.name] = held(use.name);
  const bool was_divided = is_directory(*log.state);
  const Effects effects = apply(*log.state, static_cast<Position>(log.records.size() - 1), event);
  const bool applied = effects.outcome == Effects::Outcome::applied;
  if (trace_ != nullptr)
    say("part " + std::to_string(part) + " " + std::to_string(log.state->last) + " " + describe(event) + " -> " +
        std::string(to_text(effects.outcome)));
  if (!was_divided && is_directory(*log.state) && is_in_use(*log.state)) {
    ++marks.moved_while_held;
    // It opens the limiters in their homes, while others have permits of them in part 0.
    if (random.chance(50)) schedule.after(random.between(1, 200) * kMillisecond, [this] { start().want(2, 100); });
  }
  if (const auto* opened = std::get_if<Opened>(&event.body)) {
    ++(applied ? marks.opened : marks.opened_twice);
    if (applied) marks.set_moved += opened->sets.size();
    if (applied && has(Fault::copies)) {  // also into a part that must not open yet
      const auto into = static_cast<std::uint32_t>(random.index(logs_.size()));
      schedule.after(random.between(1, 300) * kMillisecond,
                     [this, into, bytes = log.records.back()] { append(into, bytes); });
    }
  }
  if (applied && std::holds_alternative<Expire>(event.body)) ++marks.expired;
  if (std::holds_alternative<PartitionsClaimed>(event.body)) marks.fenced += effects.reclaimed.size();
  for (const Use& use : uses) {
    const Count now = held(use.name), limit = limit_of(use.name);
    if (now > limit && now > before[use.name])
      note("limiter " + use.name + " has the limit " + std::to_string(limit) + ", but " + std::to_string(now) +
           " permits are held in all parts, since position " + std::to_string(log.state->last) + " of part " +
           std::to_string(part));
  }
  if (log.state->last % 32 == 0 && restore(save(*log.state)) != log.state)
    note("the snapshot of part " + std::to_string(part) + " is read as another state");
  must_fit_outside();
  for (const auto& process : processes_) process->record_written(part);
}

void DividedWorld::must_fit_outside() const {
  for (const Use& use : uses) {
    Count running = 0;
    for (const auto& process : processes_) running += process->running(use.name);
    const Count most = std::max(limit_of(use.name), held(use.name));
    if (running > most)
      const_cast<DividedWorld*>(this)->note("handlers with " + std::to_string(running) + " permits of " + use.name +
                                            " run, and the limit is " + std::to_string(most));
  }
}

// --- after chaos -----------------------------------------------------------------------------------------------------

void DividedWorld::must_have_moved() const {
  const State& directory = *logs_[0].state;
  if (!is_directory(directory)) throw Broken("the log was not divided");
  if (is_in_use(directory)) throw Broken("somebody still has permits in part 0");
  for (const Use& use : uses) {
    const auto& state = logs_[part_of(use.name, parts_)].state;
    if (!state || state->closed) throw Broken("the home of " + use.name + " is not open");
  }
}

/// Each process gets each limiter, in turns if there are too few permits.
void DividedWorld::must_progress() {
  std::map<std::pair<DividedProcess*, std::string>, std::uint64_t> before;
  for (DividedProcess* process : living()) {
    for (const Use& use : uses) before[{process, use.name}] = process->finished(use.name);
  }
  run_until(schedule.now() + 6 * kSecond);
  for (const auto& [of, finished] : before) {
    const auto& [process, limiter] = of;
    if (!process->stays() || process->finished(limiter) > finished) continue;
    if (!services && std::find(owners_.begin(), owners_.end(), process) == owners_.end()) continue;
    throw Broken(process->name() + " got no permit of " + limiter + " within 6 s");
  }
}

void DividedWorld::must_be_quiet() const {
  for (std::uint32_t part = 0; part < parts_; ++part) {
    if (!logs_[part].state) continue;
    for (const auto& [name, limiter] : logs_[part].state->limiters) {
      if (limiter.held() > 0)
        throw Broken(std::to_string(limiter.held()) + " permits of " + name + " are held in part " +
                     std::to_string(part) + ", and nobody wants any");
    }
    for (const DividedProcess* process : living()) {
      const auto member = process->parts().find(part);
      if (member == process->parts().end()) continue;
      const State& state = member->second->member().state();
      if (state.last == logs_[part].state->last && state != *logs_[part].state)
        throw Broken(process->name() + " has another state of part " + std::to_string(part));
      if (state.last + 50 < logs_[part].state->last)
        throw Broken(process->name() + " does not follow part " + std::to_string(part));
    }
  }
}

}  // namespace turnstile::simulation::divided

namespace turnstile::simulation {

std::optional<std::string> run_divided(std::uint64_t seed, DividedMarks& marks, std::ostream* trace) {
  try {
    divided::DividedWorld(seed, marks, trace).run();
    return std::nullopt;
  } catch (const std::exception& error) {
    return error.what();
  }
}

DividedOutcome run_many_divided(std::uint64_t first, std::uint64_t count) {
  DividedOutcome outcome;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    ++outcome.runs;
    auto why = run_divided(seed, outcome.marks);
    if (!why) continue;
    outcome.seed = seed;
    outcome.why = std::move(*why);
    break;
  }
  return outcome;
}

}  // namespace turnstile::simulation
