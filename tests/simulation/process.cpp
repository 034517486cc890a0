#include "simulation/process.hpp"

#include <algorithm>
#include <utility>

#include "simulation/world.hpp"
#include "tokens/snapshot.hpp"

namespace turnstile::simulation {

using namespace tokens;

namespace {

constexpr Micros kLongestGap = 1 * kSecond;
constexpr Time kLoop = 250 * kMillisecond;
constexpr Time kSession = 800 * kMillisecond;
/// A claim that has not held for so long is made again, with a newer fence: a zombie's may have come between.
constexpr Micros kClaimAgain = 1 * kSecond;

State newest_state(const TokenLog& log) {
  if (log.newest.position == kNowhere) return {};
  auto state = restore(log.newest.bytes);
  if (!state) throw Broken("the snapshot of position " + std::to_string(log.newest.position) + " cannot be read");
  return *std::move(state);
}

MemberSettings settings(Random& random, const Site& site) {
  MemberSettings all;
  all.about = {.host = "host",
               .pid = 1,
               .client = site.name,
               .lease_ms = site.lease_ms,
               .weight = site.weight,
               .knows = site.knows};
  all.next_id = [&random] { return random.next() | 1; };
  all.checkpoint_every = 64;
  return all;
}

}  // namespace

Process::Process(World& world, Site site)
    : world_(world),
      site_(std::move(site)),
      random_(world.random.next()),
      state_(newest_state(world.log)),
      member_(settings(random_, site_)),
      writer_(world, *this) {
  if (state_.last != kNowhere) world_.mark(Mark::restored);
  lives_.push_back({.id = member_.id()});
  for (const LimiterUse& use : site_.limiters) {
    member_.declare(use.name, use.limit, use.strict, use.set_aside);
    limiters_.push_back(std::make_unique<Workers>(world, *this, use));
  }
  last_loop_ = local_now();
  record_written();
  loop_within(0);
}

// --- time --------------------------------------------------------------------------------------------------------------

Micros Process::local_now() const {
  const Time now = world_.schedule.now();
  return site_.clock_offset + now + now * site_.clock_ppm / 1'000'000;
}

Time Process::true_delay(Micros local) const { return local * 1'000'000 / (1'000'000 + site_.clock_ppm) + 1; }

bool Process::is_paused() const { return world_.schedule.now() < paused_until_; }

bool Process::answers_the_group() const {
  const Time now = world_.schedule.now();
  if (!alive_ || leaving_ || !site_.in_group) return false;
  if (is_paused() && now - paused_since_ > kSession) return false;
  return !(cut_from_group_ && now < cut_until_);
}

void Process::later(Time delay, Schedule::Action action) {
  world_.schedule.after(delay, [this, action = std::move(action)] {
    if (!alive_) return;
    if (is_paused()) missed_.push_back(action);
    else action();
  });
}

void Process::pause(Time length, bool holds_back) {
  paused_since_ = world_.schedule.now();
  paused_until_ = paused_since_ + length;
  holds_back_ = holds_back;
  world_.schedule.after(length, [this] {
    if (!alive_ || is_paused()) return;
    if (local_now() > lives_.back().deadline) world_.mark(Mark::woke_past_deadline);
    // Which of its threads runs first is up to the machine.
    std::deque<Schedule::Action> missed = std::exchange(missed_, {});
    while (!missed.empty()) {
      const auto which = missed.begin() + static_cast<std::ptrdiff_t>(random_.index(missed.size()));
      const Schedule::Action action = std::move(*which);
      missed.erase(which);
      action();
    }
    record_written();
    loop_within(random_.between(0, 5 * kMillisecond));
  });
}

void Process::cut(Time length, bool from_group_too) {
  cut_until_ = world_.schedule.now() + length;
  cut_from_group_ = from_group_too;
  world_.schedule.after(length, [this] { record_written(); });
}

void Process::kill() {
  alive_ = false;
  if (random_.chance(50)) writer_.close();  // else what it sent is on its way
}

void Process::leave() {
  leaving_ = true;
  for (auto& limiter : limiters_) limiter->want(0, 1);
  loop_within(0);
}

void Process::heal() {
  cut_until_ = 0;
  record_written();
}

// --- the log -----------------------------------------------------------------------------------------------------------

void Process::record_written() {
  if (!alive_ || world_.log.end() == state_.last + 1) return;
  const Time most = world_.has(Fault::slow_log) && random_.chance(20) ? 500 * kMillisecond : 5 * kMillisecond;
  later(random_.between(kMillisecond / 2, most), [this] { read(); });
}

void Process::read() {
  if (world_.schedule.now() < cut_until_) return;
  const Position end = world_.log.end();
  for (Position position = state_.last + 1; position < end; ++position) {
    const Event& event = world_.log.at(position).event;
    const Effects effects = apply(state_, position, event);
    if (Checks::is_compared(position)) world_.checks.reached(position, state_);
    member_.read(state_, position, event, effects, local_now());
    if (lives_.back().fenced_at == position) lives_.back().fenced_at = kNowhere;
    obey();
  }
  if (state_.last > world_.log.newest.position + 40 && random_.chance(10))
    world_.log.newest = {.position = state_.last, .bytes = save(state_)};
  loop_within(moment());
}

void Process::sending_failed(MemberId member, std::uint32_t epoch) {
  if (member_.id() != member || member_.epoch() != epoch) return;
  member_.sending_failed();
  loop_within(0);
}

// --- the host's loop ---------------------------------------------------------------------------------------------------

void Process::loop_within(Time delay) {
  const Time at = world_.schedule.now() + delay;
  if (next_loop_ > world_.schedule.now() && next_loop_ <= at) return;
  next_loop_ = at;
  world_.schedule.after(delay, [this, at] {
    if (alive_ && next_loop_ == at && !is_paused()) loop();
  });
}

void Process::loop() {
  const Micros now = local_now();
  if (now - last_loop_ > kLongestGap) member_.distrust(now);
  last_loop_ = now;
  settle_partitions();
  bool runs = false;
  for (auto& limiter : limiters_) {
    limiter->settle();
    member_.demand(limiter->use().name, limiter->gate().demand());
    member_.given_back(limiter->use().name, limiter->gate().surrendered());
    runs = runs || limiter->runs();
  }
  if (leaving_ && !runs) member_.leave();
  member_.tick(state_, now);
  obey();
  if (const Micros deadline = lives_.back().deadline;
      now >= deadline && std::exchange(cancelled_, deadline) != deadline) {
    for (auto& limiter : limiters_) {
      limiter->gate().cancel();
      limiter->stop_lost();
    }
  }
  for (const Event& event : member_.take_events()) writer_.send(event);
  if (leaving_ && !runs) {
    alive_ = false;
    return;
  }
  next_loop_ = 0;
  loop_within(std::clamp(true_delay(member_.next_tick() - now), kMillisecond, kLoop));
}

void Process::obey() {
  for (const Order& order : member_.take_orders()) {
    for (auto& limiter : limiters_) {
      if (limiter->use().name != order.limiter) continue;
      limiter->gate().order(order);
      if (order.kind == Order::Kind::forfeit) limiter->stop_lost();
    }
  }
  if (member_.id() != lives_.back().id) {
    lives_.push_back({.id = member_.id()});
    world_.mark(Mark::new_life);
  }
  lives_.back().deadline = std::max(lives_.back().deadline, member_.open_until());
  for (auto& limiter : limiters_) limiter->gate().open_until(std::min(member_.open_until(), last_loop_ + kLongestGap));
}

// --- partitions --------------------------------------------------------------------------------------------------------

void Process::assigned(std::uint64_t generation, const std::vector<int>& partitions) {
  if (generation < generation_) return;
  generation_ = generation;
  for (auto& [partition, owned] : partitions_) {
    owned.assigned = false;
    if (site_.eager && owned.claimed) owned.give_up_first = true;
  }
  for (const int partition : partitions) partitions_[partition].assigned = true;
  loop_within(0);
}

void Process::settle_partitions() {
  for (auto& [partition, owned] : partitions_) {
    if (owned.claimed && is_confirmed(partition, owned)) owned.confirmed_at = local_now();
    if (owned.claimed && owned.fence > 0 && local_now() - owned.confirmed_at > kClaimAgain) owned.give_up_first = true;
    if (owned.claimed && (!owned.assigned || owned.give_up_first || leaving_)) {
      for (auto& limiter : limiters_) limiter->stop_on(partition);
      if (runs_on(partition)) continue;
      member_.revoke({{"orders", partition}});
      owned.claimed = owned.give_up_first = false;
    }
    if (owned.assigned && !owned.claimed && !owned.fencing && !leaving_) {
      owned.fencing = true;
      later(random_.between(1, 30) * kMillisecond, [this, which = partition] { fence_and_claim(which); });
    }
  }
}

void Process::fence_and_claim(int partition) {
  Owned& owned = partitions_[partition];
  owned.fencing = false;
  if (!owned.assigned || owned.claimed || leaving_) return;
  owned.fence = site_.database ? world_.database.count_up(partition) : 0;
  owned.claimed = true;
  owned.confirmed_at = local_now();
  member_.claim({"orders", partition}, owned.fence);
  loop_within(0);
}

bool Process::is_confirmed(int partition, const Owned& owned) const {
  const auto entry = state_.partitions.find(Partition{"orders", partition});
  return entry != state_.partitions.end() && entry->second.owner == member_.id() && entry->second.fence == owned.fence;
}

bool Process::runs_on(int partition) const {
  return std::any_of(limiters_.begin(), limiters_.end(),
                     [&](const auto& limiter) { return limiter->runs_on(partition); });
}

bool Process::has_work() const {
  if (leaving_) return false;
  if (!site_.in_group) return true;
  return std::any_of(partitions_.begin(), partitions_.end(), [&](const auto& p) {
    return p.second.assigned && p.second.claimed && !p.second.give_up_first &&
           (world_.plan().hasty_host || is_confirmed(p.first, p.second));
  });
}

std::optional<Process::Work> Process::next_work() {
  if (!has_work()) return std::nullopt;
  if (!site_.in_group) return Work{};
  std::vector<Work> all;
  for (const auto& [partition, owned] : partitions_) {
    if (owned.assigned && owned.claimed && !owned.give_up_first &&
        (world_.plan().hasty_host || is_confirmed(partition, owned)))
      all.push_back({.partition = partition, .fence = owned.fence});
  }
  return all[++next_partition_ % all.size()];
}

void Process::fenced(MemberId id, Position position) {
  for (std::size_t life = 0; life < lives_.size(); ++life) {
    if (lives_[life].id != id) continue;
    lives_[life].fenced_at = position;
    for (auto& limiter : limiters_) {
      const auto known = world_.checks.state().limiters.find(limiter->use().name);
      if (known != world_.checks.state().limiters.end() && !known->second.strict()) limiter->fenced(life);
    }
  }
}

bool Process::is_fenced_unknowingly(const std::string& limiter) const {
  const auto known = world_.checks.state().limiters.find(limiter);
  return lives_.back().fenced_at != kNowhere && known != world_.checks.state().limiters.end() &&
         !known->second.strict();
}

}  // namespace turnstile::simulation
