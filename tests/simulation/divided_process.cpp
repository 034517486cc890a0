#include <spdlog/sinks/null_sink.h>
#include <spdlog/spdlog.h>

#include <algorithm>

#include "tests/simulation/divided_world.hpp"
#include "tokens/parts.hpp"

namespace turnstile::simulation::divided {

using tokens::Micros;

namespace {

constexpr Time kLoop = 50 * kMillisecond;
/// As in process.cpp: a claim without effect for this time is made again, with a newer fence.
constexpr Time kClaimAgain = 1 * kSecond;
const std::string kGroup = "billing", kStore = "db", kTopic = "orders";

std::shared_ptr<spdlog::logger> silent() {
  static const auto logger = [] {
    auto quiet = std::make_shared<spdlog::logger>("divided", std::make_shared<spdlog::sinks::null_sink_mt>());
    quiet->set_level(spdlog::level::off);
    return quiet;
  }();
  return logger;
}

/// A process's connection to a part. As ProcessLog (services.hpp), with fewer faults.
class PartConnection final : public ports::TokenLog {
 public:
  PartConnection(DividedProcess& process, std::uint32_t part)
      : process_(process), world_(process.world()), part_(part) {}

  std::optional<Snapshot> snapshot(std::int64_t before) override {
    must_be_reached();
    const auto& all = world_.log(part_).snapshots;
    const auto number = std::min(before, static_cast<std::int64_t>(all.size())) - 1;
    if (number < 0) return std::nullopt;
    ++world_.marks.restored;
    return Snapshot{.number = number, .bytes = all[static_cast<std::size_t>(number)]};
  }
  std::int64_t begin() override {
    must_be_reached();
    return world_.log(part_).begin;
  }
  std::int64_t end() override { return static_cast<std::int64_t>(world_.log(part_).records.size()); }
  void seek(std::int64_t position) override { next_ = position; }
  std::vector<Record> read(std::chrono::milliseconds) override {
    std::vector<Record> records;
    if (process_.is_cut()) return records;
    if (next_ < world_.log(part_).begin) throw TokenLogTrimmed("it was trimmed");
    for (; next_ < end(); ++next_)
      records.push_back({.position = next_, .bytes = world_.log(part_).records[static_cast<std::size_t>(next_)]});
    return records;
  }
  void append(std::string bytes) override {
    Random random(process_.random().next());
    const auto write_late = [&] {
      world_.schedule.after(random.between(50, 3'000) * kMillisecond,
                            [&world = world_, part = part_, bytes] { world.append(part, bytes); });
    };
    if (broken_) {
      if (world_.has(Fault::late_retries) && random.chance(50)) write_late();
      return;
    }
    if (world_.has(Fault::late_retries) && random.chance(2)) {
      write_late();
      return fail(random.between(20, 500) * kMillisecond);
    }
    if (world_.has(Fault::gaps) && random.chance(2)) return report_later(random.between(20, 2'000) * kMillisecond);
    if (world_.has(Fault::lost_answers) && random.chance(2)) fail(random.between(20, 800) * kMillisecond);
    const Time slow = world_.has(Fault::slow) && random.chance(20) ? 500 * kMillisecond : 5 * kMillisecond;
    const Time now = world_.schedule.now();
    last_arrival_ = std::max(last_arrival_, now + random.between(kMillisecond / 2, slow));
    // A process that was cut off or has died may still have it on the way.
    if (process_.is_cut() && random.chance(50)) return report_later(random.between(20, 800) * kMillisecond);
    world_.schedule.after(last_arrival_ - now,
                          [&world = world_, part = part_, bytes = std::move(bytes)] { world.append(part, bytes); });
  }
  bool failed() override {
    if (!std::exchange(failed_, false)) return false;
    ++producer_;
    broken_ = false;
    return true;
  }
  [[nodiscard]] std::string why_failed() const override { return "chaos"; }
  void save(std::int64_t position, std::string snapshot) override {
    if (process_.is_cut()) return;
    world_.log(part_).snapshots.push_back(std::move(snapshot));
    saved_ = std::max(saved_, position);
  }
  [[nodiscard]] std::int64_t saved() const override { return saved_; }
  void trim(std::int64_t below) override {
    if (process_.is_cut() || below <= world_.log(part_).begin) return;
    world_.log(part_).begin = std::min(below, end());
    ++world_.marks.trimmed;
  }
  void wake() noexcept override { ring(process_.random().between(0, 2 * kMillisecond)); }
  void flush(std::chrono::milliseconds) override {}
  [[nodiscard]] std::string name() const override { return "part " + std::to_string(part_); }

 private:
  void must_be_reached() const {
    if (process_.is_cut()) throw BrokerError(Code::kafka_unavailable, "the part cannot be reached");
  }
  void ring(Time delay) {
    const auto known = process_.parts().find(part_);
    if (known != process_.parts().end()) known->second->loop_within(delay);
  }
  void fail(Time report_after) {
    broken_ = true;
    report_later(report_after);
  }
  void report_later(Time after) {
    process_.later(after, [this, producer = producer_] {
      if (producer != producer_) return;
      failed_ = true;
      ring(0);
    });
  }

  DividedProcess& process_;
  DividedWorld& world_;
  const std::uint32_t part_;
  std::int64_t next_ = 0, saved_ = -1;
  Time last_arrival_ = 0;
  std::uint64_t producer_ = 1;
  bool broken_ = false, failed_ = false;
};

}  // namespace

// --- a member --------------------------------------------------------------------------------------------------------

PartOfProcess::PartOfProcess(DividedProcess& process, detail::DomainMember& member)
    : process_(process), member_(member), lives_{{.id = member.member().id()}} {
  member_.attach();
  loop_within(0);
}

void PartOfProcess::loop_within(Time delay) {
  Schedule& schedule = process_.world().schedule;
  const Time at = schedule.now() + delay;
  if (next_ > schedule.now() && next_ <= at) return;
  next_ = at;
  process_.later(delay, [this, at] {
    if (next_ <= at) loop();
  });
}

void PartOfProcess::loop() {
  next_ = 0;
  process_.settle();
  member_.round();
  life();
  process_.settle();
  loop_within(std::clamp<Time>(member_.due() - process_.local_now(), kMillisecond, kLoop));
}

std::size_t PartOfProcess::life() {
  const tokens::Member& now = member_.member();
  if (now.id() != lives_.back().id) lives_.push_back({.id = now.id()});
  lives_.back().deadline = std::max(lives_.back().deadline, now.open_until());
  return lives_.size() - 1;
}

// --- a process -------------------------------------------------------------------------------------------------------

DividedProcess::DividedProcess(DividedWorld& world, std::string name)
    : world_(world), name_(std::move(name)), random_(world.random.next()) {
  ppm_ = world.has(Fault::drift) ? random_.between(-50'000, 50'000) : 0;
  offset_ = random_.between(10, 1'000'000) * kSecond;
  begin();
}

DividedProcess::~DividedProcess() { kill(); }

void DividedProcess::kill() {
  alive_ = false;
  for (const auto& [part, of] : parts_) of->member().detach();
  for (auto& [name, workers] : workers_) {
    for (auto& [number, withdraw] : std::exchange(workers.waiting, {})) withdraw();
    std::exchange(workers.handlers, {}).clear();
    workers.limiter.reset();
  }
}

void DividedProcess::begin() {
  TokenSettings settings;
  settings.client = name_;
  settings.lease = std::chrono::milliseconds{1'600};
  settings.snapshot_every = 32;
  detail::DomainEnvironment environment{.clock = [this] { return local_now(); },
                                        .next_id = [this] { return random_.next() | 1; }};
  const auto open = [this](std::uint32_t part) { return std::make_unique<PartConnection>(*this, part); };
  try {
    domain_ = std::make_shared<detail::DividedDomain>(
        open, settings, silent(), std::move(environment),
        detail::DividedDomain::Hands{
            .start = [this](detail::DomainMember& member,
                            std::uint32_t part) { parts_[part] = std::make_unique<PartOfProcess>(*this, member); },
            .move_soon = [this] { move_soon(); }});
  } catch (const BrokerError&) {
    later(random_.between(50, 500) * kMillisecond, [this] { begin(); });
  }
}

void DividedProcess::move_soon() {
  if (std::exchange(moving_, true)) return;
  later(random_.between(0, 20) * kMillisecond, [this] {
    moving_ = false;
    if (domain_->move()) later(200 * kMillisecond, [this] { move_soon(); });
  });
}

Micros DividedProcess::local_now() const {
  const Time now = world_.schedule.now();
  return offset_ + now + now * ppm_ / 1'000'000;
}

void DividedProcess::later(Time delay, Schedule::Action action) {
  world_.schedule.after(delay, [this, action = std::move(action)] {
    if (!alive_) return;
    if (world_.schedule.now() < paused_until_) missed_.push_back(action);
    else action();
  });
}

void DividedProcess::pause(Time length) {
  paused_until_ = std::max(paused_until_, world_.schedule.now() + length);
  world_.schedule.after(length, [this] {
    if (world_.schedule.now() < paused_until_) return;
    for (auto& action : std::exchange(missed_, {})) {
      if (alive_) action();
    }
  });
}

void DividedProcess::record_written(std::uint32_t part) {
  const auto known = parts_.find(part);
  if (!alive_ || known == parts_.end()) return;
  const Time most = world_.has(Fault::slow) && random_.chance(20) ? 500 * kMillisecond : 5 * kMillisecond;
  known->second->loop_within(random_.between(kMillisecond / 2, most));
}

// --- partitions ------------------------------------------------------------------------------------------------------

void DividedProcess::claim(int partition, std::uint64_t fence) {
  if (!domain_ || leaving_) return;
  owned_[partition] = {.fence = fence, .ours_at = world_.schedule.now()};
  domain_->on_claimed(kGroup, kStore, {kTopic, partition}, Epoch{static_cast<std::int64_t>(fence)});
  settle();
}

void DividedProcess::give_up(int partition) {
  const auto known = owned_.find(partition);
  if (known != owned_.end()) known->second.ends = true;
  settle();
}

/// As a host that has called wait_until_claimed().
bool DividedProcess::is_ours(int partition, const Owned& owned) const {
  return std::all_of(parts_.begin(), parts_.end(), [&](const auto& part) {
    const detail::DomainMember& member = part.second->member();
    if (member.member().phase() != tokens::Member::Phase::joined) return true;
    const auto entry = member.state().partitions.find({kTopic, partition, kGroup, kStore});
    return !member.member().is_claiming() && entry != member.state().partitions.end() &&
           entry->second.owner == member.member().id() && entry->second.fence == owned.fence;
  });
}

std::vector<int> DividedProcess::able() const {
  if (leaving_ || !domain_) return {};
  if (world_.services) return {-1};
  std::vector<int> all;
  for (const auto& [partition, owned] : owned_) {
    if (!owned.ends && is_ours(partition, owned)) all.push_back(partition);
  }
  return all;
}

// --- handlers --------------------------------------------------------------------------------------------------------

void DividedProcess::want(int workers, std::int64_t longest_ms) {
  wanted_ = workers;
  longest_ms_ = longest_ms;
  later(0, [this] { settle(); });
}

void DividedProcess::settle() {
  if (!domain_ || !alive_) return;
  for (auto& [partition, owned] : owned_) {
    if (is_ours(partition, owned)) owned.ours_at = world_.schedule.now();
  }
  const std::size_t wanted = able().empty() ? 0 : static_cast<std::size_t>(wanted_);
  for (const Use& use : world_.uses) {
    Workers& workers = workers_[use.name];
    std::vector<decltype(workers.handlers)::node_type> lost;
    for (auto at = workers.handlers.begin(); at != workers.handlers.end();) {
      const auto handler = at++;
      if (handler->second.permit.lost().stop_requested()) lost.push_back(workers.handlers.extract(handler));
    }
    lost.clear();
    if (wanted > 0 && !workers.limiter && world_.schedule.now() >= opens_again_) {
      try {
        workers.limiter = world_.services
                              ? domain_->open(use.name, static_cast<std::int64_t>(use.limit))
                              : domain_->open_for_partitions(use.name, static_cast<std::int64_t>(use.limit));
      } catch (const BrokerError&) {
        opens_again_ = world_.schedule.now() + 100 * kMillisecond;
      }
    }
    while (workers.limiter && workers.handlers.size() + workers.waiting.size() < wanted) ask(use, workers);
    while (workers.handlers.size() + workers.waiting.size() > wanted && !workers.waiting.empty()) {
      const auto withdraw = std::move(workers.waiting.begin()->second);
      workers.waiting.erase(workers.waiting.begin());
      withdraw();
    }
  }
  const auto runs_on = [&](int partition) {
    return std::any_of(workers_.begin(), workers_.end(), [&](const auto& of) {
      return std::any_of(of.second.handlers.begin(), of.second.handlers.end(),
                         [&](const auto& handler) { return handler.second.partition == partition; });
    });
  };
  std::erase_if(owned_, [&](auto& of) {
    const auto& [partition, owned] = of;
    const bool again = world_.schedule.now() > owned.ours_at + kClaimAgain;
    if (!(owned.ends || leaving_ || again) || runs_on(partition)) return false;
    const std::array<TopicPartition, 1> ended{{{kTopic, partition}}};
    domain_->on_revoked(kGroup, ended);
    if (!owned.ends && !leaving_)
      later(kMillisecond, [this, which = partition] { claim(which, world_.count_up(which)); });
    return true;
  });
  const bool is_idle =
      std::all_of(workers_.begin(), workers_.end(), [](const auto& of) { return of.second.handlers.empty(); });
  if (!leaving_ || !is_idle || !owned_.empty()) return;
  for (const auto& member : domain_->members()) member->depart();
  alive_ = false;
}

void DividedProcess::ask(const Use& use, Workers& workers) {
  const std::uint64_t number = ++last_;
  workers.waiting[number] = [] { return true; };
  auto withdraw = workers.limiter->acquire_later(1, Priority::normal, [this, number, &use, &workers](Permit permit) {
    workers.waiting.erase(number);
    if (!alive_ || world_.is_over()) return;
    try {
      run(use, workers, std::move(permit));
    } catch (const Broken& broken) {
      world_.note(broken.what());
    }
  });
  if (const auto still = workers.waiting.find(number); still != workers.waiting.end())
    still->second = std::move(withdraw);
}

void DividedProcess::run(const Use& use, Workers& workers, Permit permit) {
  const std::vector<int> partitions = able();
  if (partitions.empty()) return;
  const int partition = partitions[random_.index(partitions.size())];
  std::uint32_t part = 0;
  for (const auto& [number, of] : parts_) {
    if (number > 0 && of->member().uses(use.name)) part = number;
  }
  const std::uint64_t number = ++last_;
  workers.handlers[number] = {.permit = std::move(permit),
                              .part = part,
                              .life = parts_.at(part)->life(),
                              .partition = partition,
                              .fence = partition < 0 ? 0 : owned_.at(partition).fence};
  world_.say(name_ + " runs a handler of " + use.name + " under part " + std::to_string(part) + " on partition " +
             std::to_string(partition));
  world_.must_fit_outside();
  later(random_.between(1, longest_ms_) * kMillisecond, [this, &workers, number] {
    auto ended = workers.handlers.extract(number);  // a permit that returns can start the next handler at once
    if (ended) ++workers.finished;
    const Permit returns = ended ? std::move(ended.mapped().permit) : Permit();
    later(0, [this] { settle(); });
  });
}

tokens::Count DividedProcess::running(const std::string& limiter) const {
  const auto workers = workers_.find(limiter);
  if (!alive_ || workers == workers_.end()) return 0;
  return static_cast<tokens::Count>(
      std::count_if(workers->second.handlers.begin(), workers->second.handlers.end(), [&](const auto& of) {
        const Handler& handler = of.second;
        if (local_now() >= parts_.at(handler.part)->life(handler.life).deadline) return false;
        return handler.partition < 0 || handler.fence == world_.fence(handler.partition);
      }));
}

std::uint64_t DividedProcess::finished(const std::string& limiter) const {
  const auto workers = workers_.find(limiter);
  return workers == workers_.end() ? 0 : workers->second.finished;
}

}  // namespace turnstile::simulation::divided
