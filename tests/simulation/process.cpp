#include "tests/simulation/process.hpp"

#include <spdlog/sinks/null_sink.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>

#include "tests/simulation/world.hpp"
#include "tokens/planted.hpp"

namespace turnstile::simulation {

using namespace tokens;

namespace {

constexpr Time kLoop = 50 * kMillisecond;  // the interval of the shipped thread
constexpr Time kSession = 800 * kMillisecond;
/// A claim without effect for this time is made again, with a newer fence: a claim of a zombie may have come between.
constexpr Micros kClaimAgain = 1 * kSecond;
const std::string kTopic = "orders";

std::shared_ptr<spdlog::logger> silent() {
  static const auto logger = [] {
    auto quiet = std::make_shared<spdlog::logger>("simulation", std::make_shared<spdlog::sinks::null_sink_mt>());
    quiet->set_level(spdlog::level::off);
    return quiet;
  }();
  return logger;
}

}  // namespace

Process::Process(World& world, Site site) : world_(world), site_(std::move(site)), random_(world.random.next()) {
  if (!site_.groups.empty()) {
    for (const LimiterUse& use : site_.limiters)
      limiters_.push_back(std::make_unique<Workers>(world, *this, use, false));
  }
  if (site_.service || site_.groups.empty()) {
    for (const LimiterUse& use : site_.limiters)
      limiters_.push_back(std::make_unique<Workers>(world, *this, use, true));
  }
  begin();
}

Process::~Process() {
  alive_ = false;
  limiters_.clear();
  if (domain_) domain_->detach();
}

void Process::begin() {
  auto log = std::make_unique<ProcessLog>(world_, *this);
  ProcessLog* const its_log = log.get();
  TokenSettings settings;
  settings.client = site_.name;
  settings.lease = std::chrono::milliseconds{site_.lease_ms};
  settings.weight = site_.weight;
  settings.strict = site_.strict;
  settings.reserve = site_.reserve;
  settings.reserve_for = site_.reserve_for;
  settings.reserve_time = std::chrono::milliseconds{site_.reserve_ms};
  settings.snapshot_every = site_.snapshot_every;
  if (site_.most_limiters > 0) settings.most_limiters = site_.most_limiters;
  detail::DomainEnvironment environment{.clock = [this] { return local_now(); },
                                        .next_id = [this] { return random_.next() | 1; },
                                        .knows = site_.knows,
                                        .knows_rest = site_.knows_rest};
  try {
    domain_ = std::make_shared<detail::DomainMember>(std::move(log), settings, silent(), std::move(environment));
  } catch (const BrokerError&) {  // it would end, and would be started again
    return later(random_.between(50, 500) * kMillisecond, [this] { begin(); });
  }
  log_ = its_log;
  domain_->attach();
  lives_.push_back({.id = member().id()});
  if (state().last != kNowhere) world_.mark(Mark::restored);
  for (auto& limiter : limiters_) limiter->settle();
  loop_within(0);
}

std::shared_ptr<ports::Limiter> Process::open(const LimiterUse& use, bool service) {
  if (!domain_) return nullptr;
  return domain_->open(use.name, static_cast<std::int64_t>(use.limit), service, [] { return ports::LimiterState{}; });
}

// --- time ------------------------------------------------------------------------------------------------------------

Micros Process::local_now() const {
  const Time stands = stops_clock_ ? std::min(world_.schedule.now(), paused_until_) - paused_since_ : 0;
  const Time ran = world_.schedule.now() - clock_stood_ - stands;
  return site_.clock_offset + ran + ran * site_.clock_ppm / 1'000'000;
}

Time Process::true_delay(Micros local) const { return local * 1'000'000 / (1'000'000 + site_.clock_ppm) + 1; }

bool Process::is_paused() const { return world_.schedule.now() < paused_until_; }

bool Process::answers_the_group(int group) const {
  const Time now = world_.schedule.now();
  if (!alive_ || leaving_ || !domain_) return false;
  if (std::find(site_.groups.begin(), site_.groups.end(), group) == site_.groups.end()) return false;
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

void Process::pause(Time length, bool holds_back, bool stops_clock) {
  paused_since_ = world_.schedule.now();
  paused_until_ = paused_since_ + length;
  holds_back_ = holds_back;
  stops_clock_ = stops_clock;
  if (stops_clock) {
    world_.mark(Mark::clock_stopped);
    for (Life& life : lives_) life.clock_stopped = true;
  }
  world_.schedule.after(length, [this, length, stops_clock] {
    if (std::exchange(stops_clock_, false) && stops_clock) clock_stood_ += length;
    if (!alive_ || is_paused()) return;
    if (!lives_.empty() && local_now() > lives_.back().deadline) world_.mark(Mark::woke_past_deadline);
    // The machine decides which of its threads runs first.
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
  if (log_ != nullptr && random_.chance(50)) log_->close();  // otherwise its sent records are still in flight
}

void Process::ask_to_leave() {
  asked_to_leave_ = true;
  later(0, [this] { leave(); });
}

void Process::leave() {
  leaving_ = true;
  for (auto& limiter : limiters_) limiter->want(0, 1, 0);
  loop_within(0);
}

void Process::heal() {
  cut_until_ = 0;
  record_written();
}

// --- the domain's rounds ---------------------------------------------------------------------------------------------

void Process::record_written() {
  if (!alive_ || !domain_ || world_.log.end() == state().last + 1) return;
  const bool slow = world_.has(Fault::slow_log) && random_.chance(20);
  const bool late = world_.has(Fault::late_readers) && random_.chance(10);
  const Time most = late ? 2'000 * kMillisecond : slow ? 500 * kMillisecond : 5 * kMillisecond;
  later(random_.between(kMillisecond / 2, most), [this] { loop_within(0); });
}

void Process::loop_within(Time delay) {
  const Time at = world_.schedule.now() + delay;
  if (next_loop_ > world_.schedule.now() && next_loop_ <= at) return;
  next_loop_ = at;
  world_.schedule.after(delay, [this, at] {
    if (alive_ && next_loop_ == at && !is_paused()) loop();
  });
}

void Process::loop() {
  next_loop_ = 0;
  world_.must_be_whole();
  if (!domain_) {
    if (leaving_) alive_ = false;
    return;
  }
  settle_partitions();
  for (auto& limiter : limiters_) limiter->settle();
  if (leaving_ && !runs()) {
    domain_->depart();
    alive_ = false;
    return;
  }
  reads_on_ = false;
  domain_->round();
  look_after_round();
  if (reads_on_) return loop_within(0);
  loop_within(std::clamp(true_delay(domain_->due() - local_now()), kMillisecond, kLoop));
}

std::size_t Process::life() {
  if (member().id() != lives_.back().id) {
    lives_.push_back({.id = member().id()});
    world_.mark(Mark::new_life);
  }
  lives_.back().deadline = std::max(lives_.back().deadline, member().open_until());
  reserve_deadline_ = std::max(reserve_deadline_, member().reserve_until());
  return lives_.size() - 1;
}

void Process::look_after_round() {
  life();
  if (Checks::is_compared(state().last)) world_.checks.reached(state().last, state());
  for (auto& [place, owned] : partitions_) owned.is_ours = is_ours(place, owned);
  for (auto& limiter : limiters_) {
    limiter->stop_lost();
    limiter->settle();
  }
}

// --- partitions ------------------------------------------------------------------------------------------------------

void Process::assigned(int group, std::uint64_t generation, const std::vector<int>& partitions) {
  if (generation < generations_[group] || !domain_) return;
  generations_[group] = generation;
  for (auto& [place, owned] : partitions_) {
    if (place.first != group) continue;
    owned.assigned = false;
    if (site_.eager && owned.claimed) owned.give_up_first = true;
  }
  for (const int partition : partitions) {
    Owned& owned = partitions_[{group, partition}];
    const Group& of = world_.groups[static_cast<std::size_t>(group)];
    owned.partition = {kTopic, partition, of.name, of.store};
    owned.assigned = true;
  }
  loop_within(0);
}

void Process::settle_partitions() {
  for (auto& [place, owned] : partitions_) {
    if (owned.claimed && is_confirmed(owned)) owned.confirmed_at = local_now();
    if (owned.claimed && owned.fence > 0 && local_now() - owned.confirmed_at > kClaimAgain) owned.give_up_first = true;
    if (owned.claimed && (!owned.assigned || owned.give_up_first || leaving_)) {
      for (auto& limiter : limiters_) limiter->stop_on(place);
      if (runs_on(place)) continue;
      const std::array<TopicPartition, 1> ended{{{kTopic, place.second}}};
      domain_->on_revoked(world_.groups[static_cast<std::size_t>(place.first)].name, ended);
      owned.claimed = owned.give_up_first = false;
    }
    if (owned.assigned && !owned.claimed && !owned.fencing && !leaving_) {
      owned.fencing = true;
      later(random_.between(1, 30) * kMillisecond, [this, which = place] { fence_and_claim(which); });
    }
  }
}

Databases::Key Process::key_of(const Work& work) const {
  const Group& group = world_.groups[static_cast<std::size_t>(work.group)];
  return {group.store, group.name, work.partition};
}

void Process::fence_and_claim(Place place) {
  Owned& owned = partitions_[place];
  owned.fencing = false;
  if (!owned.assigned || owned.claimed || leaving_) return;
  const Group& group = world_.groups[static_cast<std::size_t>(place.first)];
  owned.fence = group.store.empty() ? 0 : world_.databases.count_up({group.store, group.name, place.second});
  owned.claimed = true;
  owned.is_ours = false;
  owned.confirmed_at = local_now();
  domain_->on_claimed(group.name, group.store, {kTopic, place.second}, Epoch{static_cast<std::int64_t>(owned.fence)});
  loop_within(0);
}

bool Process::is_ours(Place place, const Owned& owned) const {
  auto entry = state().partitions.find(owned.partition);
  if (TURNSTILE_PLANTED(groups_share_partitions)) entry = state().partitions.find(Partition{kTopic, place.second});
  return entry != state().partitions.end() && entry->second.owner == member().id() &&
         entry->second.fence == owned.fence;
}

bool Process::can_work_on(const Owned& owned) const {
  return owned.assigned && owned.claimed && !owned.give_up_first && (world_.plan().hasty_host || is_confirmed(owned));
}

bool Process::runs_on(Place place) const {
  return std::any_of(limiters_.begin(), limiters_.end(), [&](const auto& limiter) { return limiter->runs_on(place); });
}

bool Process::runs() const {
  return std::any_of(limiters_.begin(), limiters_.end(), [](const auto& limiter) { return limiter->runs(); });
}

bool Process::has_work(bool service) const {
  if (leaving_ || !domain_) return false;
  if (service) return true;
  return std::any_of(partitions_.begin(), partitions_.end(), [&](const auto& p) { return can_work_on(p.second); });
}

bool Process::has_work() const {
  return std::any_of(limiters_.begin(), limiters_.end(), [](const auto& limiter) { return limiter->has_work(); });
}

std::optional<Process::Work> Process::next_work(bool service) {
  if (!has_work(service)) return std::nullopt;
  if (service) return Work{};
  std::vector<Work> all;
  for (const auto& [place, owned] : partitions_) {
    if (can_work_on(owned)) all.push_back({.group = place.first, .partition = place.second, .fence = owned.fence});
  }
  return all[++next_place_ % all.size()];
}

void Process::fenced(MemberId id, Position position) {
  for (std::size_t life = 0; life < lives_.size(); ++life) {
    if (lives_[life].id != id) continue;
    for (auto& limiter : limiters_) {
      if (!is_taken_by_fences(limiter->use().name, id)) continue;
      lives_[life].fenced_at[limiter->use().name] = position;
      limiter->fenced(life);
    }
  }
}

/// A fence returns no permits of a limiter with calls that no fence rejects.
bool Process::is_taken_by_fences(const std::string& name, MemberId id) const {
  const auto known = world_.checks.state().limiters.find(name);
  if (known == world_.checks.state().limiters.end() || known->second.strict()) return false;
  const auto holding = known->second.holdings.find(id);
  return holding == known->second.holdings.end() || !holding->second.outlives_fence ||
         TURNSTILE_PLANTED(fence_reclaims_services);
}

bool Process::is_fenced_unknowingly(const std::string& limiter) const {
  const Life& now = lives_.back();
  const auto fenced = now.fenced_at.find(limiter);
  return !now.clock_stopped && fenced != now.fenced_at.end() && fenced->second > state().last;
}

}  // namespace turnstile::simulation
