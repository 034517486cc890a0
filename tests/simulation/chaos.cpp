#include "tests/simulation/chaos.hpp"

#include "tokens/wire.hpp"

namespace turnstile::simulation {

using namespace tokens;

void Chaos::go_on() {
  if (!world_.chaotic()) return;
  random_ = Random(steps_.next());
  Random& random = random_;
  const auto living = world_.living();
  if (!living.empty()) {
    Process& process = *living[random.index(living.size())];
    const auto fault = static_cast<Fault>(random.index(kFaults));
    if (random.chance(35)) {
      change_work(process);
    } else if (world_.has(fault)) {
      switch (fault) {
        case Fault::pauses: pause(process); break;
        case Fault::cuts: cut(process); break;
        case Fault::crashes:
        case Fault::deaths:
        case Fault::departures: end(process, fault); break;
        case Fault::copies: copy_a_record(); break;
        case Fault::garbage: write_garbage(); break;
        case Fault::forgery: forge(); break;
        case Fault::limit_changes: set_a_limit(); break;
        case Fault::version_skew: set_the_version(); break;
        case Fault::late_rebalance:
        case Fault::odd_rebalance: world_.coordinators[random.index(world_.coordinators.size())]->rebalance(); break;
        case Fault::unused_names: stop_using(process); break;
        default: break;  // the other faults happen elsewhere
      }
    }
  }
  world_.schedule.after(random.between(5, 120) * kMillisecond, [this] { go_on(); });
}

void Chaos::change_work(Process& process) {
  Random& random = random_;
  auto& limiter = *process.limiters()[random.index(process.limiters().size())];
  const int workers = static_cast<int>(random.chance(20) ? 0 : random.between(1, 4));
  const std::int64_t longest_ms = random.chance(10) ? 3'000 : random.between(5, 300);
  const int wide = random.chance(20) ? 50 : 0;
  process.later(0, [this, &limiter, workers, longest_ms, wide] {
    if (world_.chaotic()) limiter.want(workers, longest_ms, wide);
  });
}

void Chaos::stop_using(Process& process) {
  auto& limiter = *process.limiters()[random_.index(process.limiters().size())];
  process.later(0, [&limiter] {
    limiter.want(0, 1, 0);
    limiter.let_go();
    limiter.settle();
  });
}

void Chaos::pause(Process& process) {
  if (process.is_paused()) return;
  Random& random = random_;
  const Time length = random.chance(30) ? random.between(10, 900) : random.between(900, 5'000);
  const bool holds_back = random.chance(50);
  const bool stops_clock = random.chance(30) && world_.has(Fault::stopped_clocks);
  world_.say([&] {
    return process.name() + (stops_clock ? " and its clock are" : " is") + " paused for " + std::to_string(length) +
           " ms";
  });
  process.pause(length * kMillisecond, holds_back, stops_clock);
}

void Chaos::cut(Process& process) {
  Random& random = random_;
  const Time length = random.between(50, 4'000);
  world_.say([&] { return process.name() + " cannot reach the log for " + std::to_string(length) + " ms"; });
  process.cut(length * kMillisecond, random.chance(50));
}

void Chaos::end(Process& process, Fault how) {
  Random& random = random_;
  if (how != Fault::crashes && world_.living().size() < 2) return;  // at least one process must remain for the checks
  if (how != Fault::crashes && random.chance(50)) return;
  const Site site = process.site();
  world_.say([&] { return process.name() + ": " + std::string(kFaultNames[static_cast<std::size_t>(how)]); });
  if (how == Fault::departures) process.ask_to_leave();
  else process.kill();
  if (how == Fault::deaths) return;
  Site next = site;  // because a rollout may change it
  if (next.reserve_for > 0 && random.chance(30)) next.reserve = static_cast<std::uint32_t>(random.between(1, 2));
  world_.to_restart_.push_back(next);
  world_.schedule.after(random.between(10, 3'000) * kMillisecond, [this] {
    if (world_.to_restart_.empty()) return;
    const Site again = world_.to_restart_.back();
    world_.to_restart_.pop_back();
    change_work(world_.start(again));
  });
}

void Chaos::copy_a_record() {
  const Position end = world_.log.end();
  if (end == 0) return;
  Random& random = random_;
  const Position first = random.chance(50) ? 0 : std::max<Position>(0, end - 10);
  world_.log.append(world_.log.at(random.between(first, end - 1)).bytes);
}

void Chaos::write_garbage() {
  Random& random = random_;
  std::string bytes;
  if (random.chance(50) && world_.log.end() > 0) {  // part of an event
    bytes = world_.log.at(random.between(0, world_.log.end() - 1)).bytes;
    bytes.resize(random.index(bytes.size() + 1));
  } else {
    for (std::size_t size = random.index(60); size > 0; --size) bytes += static_cast<char>(random.next());
  }
  // Bytes that are still a valid event of a member would be a forgery, which is another fault.
  if (!std::holds_alternative<Unknown>(decode(bytes).body)) bytes += '\x07';
  world_.log.append(bytes);
}

/// A stranger can write any events under its own id, and can hold a member's permits for one lease. In a member's name
/// it can make that member lose its account. It could also end the member, or give its permits to others; only
/// restricted access to the topic prevents that.
void Chaos::forge() {
  const auto living = world_.living();
  const Process& one = *living[random_.index(living.size())];
  const bool as_a_member = random_.chance(40) && one.has_begun();
  world_.log.append(encode(as_a_member ? in_the_name_of(one) : by_a_stranger()));
}

Event Chaos::in_the_name_of(const Process& process) {
  Random& random = random_;
  const auto known = world_.checks.state().members.find(process.member().id());
  const std::uint64_t seq = known == world_.checks.state().members.end() ? 0 : known->second.seq;
  Event event{.member = process.member().id(),
              .epoch = process.member().epoch(),
              .seq = seq + static_cast<std::uint64_t>(random.between(0, 5)),
              .body = {}};
  const LimiterUse& use = process.site().limiters.front();
  const Line line{.limiter = use.name,
                  .limit = use.limit,
                  .strict = process.site().strict,
                  .wants = static_cast<Count>(random.between(0, 1'000'000'000)),
                  .set_aside = Count{process.site().reserve} * process.site().reserve_for,
                  .turn_over = random.chance(30),
                  .reserve = process.site().reserve};
  switch (random.index(3)) {
    case 0: event.body = Keep{{line}, {}}; break;
    case 1: event.body = Acquire{line}; break;
    default:
      ++event.epoch;
      event.body = process.member().phase() == Member::Phase::joined
                       ? decltype(event.body){Joined{.host = "elsewhere",
                                                     .pid = 0,
                                                     .client = "forged",
                                                     .lease_ms = process.site().lease_ms,
                                                     .weight = process.site().weight,
                                                     .knows = process.site().knows}}
                       : decltype(event.body){Acquire{line}};
  }
  return event;
}

Event Chaos::by_a_stranger() {
  Random& random = random_;
  const Site& site = world_.sites_.front();
  const LimiterUse& use = site.limiters.front();
  if (phantom_ == 0 || random.chance(50)) {
    phantom_ = random.next() | 1;
    phantom_seq_ = 1;
    if (random.chance(60))
      return {phantom_, 1, 1, Joined{"nowhere", 0, "phantom", site.lease_ms, 1, kNewestVersion + 1}};
  }
  const Line line{.limiter = use.name,
                  .limit = use.limit,
                  .strict = site.strict,
                  .wants = static_cast<Count>(random.between(0, 50)),
                  .urgent = static_cast<Count>(random.between(0, 5)),
                  .given_back = static_cast<Count>(random.between(0, 3))};
  Event event{.member = phantom_, .epoch = 1, .seq = ++phantom_seq_, .body = {}};
  const auto& members = world_.checks.state().members;
  switch (random.index(6)) {
    case 0: event.body = Acquire{line}; break;
    case 1: event.body = Release{line}; break;
    case 2: event.body = Keep{{line, line}, Checkpoint{1, 1}}; break;
    case 3: event.body = Drained{}; break;
    case 4: event.body = PartitionsClaimed{{{{"orders", 1'000}, 5, kNowhere}}}; break;
    default:  // it has not waited for any lease
      if (members.empty() || members.contains(phantom_)) event.body = Left{};
      else event.body = Expire{members.begin()->first, world_.checks.state().last};
  }
  return event;
}

void Chaos::set_a_limit() {
  Random& random = random_;
  const auto& uses = world_.sites_.front().limiters;
  const State& state = world_.checks.state();
  LimitSet change{.limiter = uses[random.index(uses.size())].name, .limit = {}, .seen = state.last};
  if (random.chance(80)) change.limit = static_cast<Count>(random.chance(5) ? 1'000'000'000 : random.between(0, 8));
  if (random.chance(30)) change.seen = random.between(kNowhere, std::max<Position>(kNowhere, state.last));
  world_.log.append(encode({.member = 0, .epoch = 0, .seq = 0, .body = change}));
}

/// Switches only if all members know the version. This code does not know it, so then all must halt.
void Chaos::set_the_version() {
  if (!random_.chance(20)) return;
  world_.log.append(encode({.member = 0, .epoch = 0, .seq = 0, .body = VersionSet{kNewestVersion + 1}}));
}

}  // namespace turnstile::simulation
