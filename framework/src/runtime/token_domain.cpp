#include "runtime/token_domain.hpp"

#include <unistd.h>

#include <algorithm>
#include <random>

#include "runtime/deadline.hpp"
#include "runtime/gate_limiter.hpp"
#include "runtime/permits_view.hpp"
#include "runtime/process_name.hpp"
#include "tokens/snapshot.hpp"
#include "tokens/wire.hpp"
#include "turnstile/lease_clock.hpp"
#include "turnstile/log.hpp"

namespace turnstile {

namespace {

using std::chrono::milliseconds;
using tokens::Count;
using tokens::Micros;

/// The thread looks around at least so often.
constexpr milliseconds kLongestWait{50};
/// Whoever has not looked around for so long may have slept through anything: what it held may be held by others.
constexpr Micros kFresh = 1'000'000;
/// How long a rebalance waits for the claims of its partitions to be read back.
constexpr milliseconds kLongestClaim{10'000};
/// Who cannot write tries again at once, then after this, twice this, ... at most so long.
constexpr Micros kFirstRetry = 100'000, kLongestRetry = 5'000'000;
/// How long leaving may take.
constexpr milliseconds kFarewell{2'000};
/// Members that keep snapshots: the oldest ones, so that one may be away.
constexpr std::ptrdiff_t kKeepers = 2;

Micros now_us() { return LeaseClock::now_us(); }

tokens::MemberId random_id() {
  std::random_device random;
  return (tokens::MemberId{random()} << 32 | random()) | 1;
}

tokens::MemberSettings member_settings(const TokenSettings& settings) {
  tokens::MemberSettings member;
  member.about = {.host = host_name(),
                  .pid = static_cast<std::uint32_t>(::getpid()),
                  .client = settings.client.substr(0, tokens::kLongestName),
                  .lease_ms = static_cast<std::uint32_t>(settings.lease.count()),
                  .weight = settings.weight,
                  .knows = tokens::kNewestVersion};
  member.next_id = random_id;
  member.turn = std::chrono::microseconds(settings.turn).count();
  member.checkpoint_every = settings.snapshot_every;
  return member;
}

tokens::Partition partition_of(const TopicPartition& at) { return {at.topic, at.partition}; }

}  // namespace

void DomainMember::Bell::ring() {
  if (rung.exchange(true)) return;
  const std::lock_guard lock(mutex);
  if (domain != nullptr) domain->log_->wake();
}

DomainMember::DomainMember(std::unique_ptr<TokenLog> log, const TokenSettings& settings,
                           std::shared_ptr<spdlog::logger> logger)
    : settings_(settings),
      journal_(std::move(logger), own_name(settings.client.substr(0, tokens::kLongestName))),
      log_(std::move(log)),
      member_(member_settings(settings)) {
  restore();
}

void DomainMember::start() {
  bell_->domain = this;
  last_step_ = now_us();
  thread_ = std::thread([self = shared_from_this()] { self->run(); });
}

void DomainMember::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  log_->wake();
  // The last one to let go may be somebody whom this very thread has called.
  if (thread_.get_id() == std::this_thread::get_id()) thread_.detach();
  else thread_.join();
}

/// The newest snapshot that can be read and that the log goes on from.
void DomainMember::restore() {
  const std::int64_t begin = log_->begin();
  const auto snapshots = log_->snapshots();
  const std::int64_t end = log_->end();
  for (const std::string& bytes : snapshots) {
    auto state = tokens::restore(bytes);
    if (!state) {
      journal_.warn("a snapshot of the token log, " + log_->name() + ", cannot be read (" +
                    std::to_string(bytes.size()) + " bytes); trying the one before it");
      continue;
    }
    if (state->last + 1 < begin) continue;
    if (state->last >= end) {  // of a topic that was here before
      journal_.warn("a snapshot of the token log was made at position " + std::to_string(state->last) + ", but " +
                    log_->name() + " ends at " + std::to_string(end) +
                    ": the topic was created anew since; passing the snapshot over");
      continue;
    }
    state_ = std::move(*state);
    break;
  }
  if (state_.last + 1 < begin) {
    throw TokenLogBroken(
        log_->name() + " begins at position " + std::to_string(begin) +
        ", and there is no snapshot that reaches so far (" + std::to_string(snapshots.size()) +
        " were found): who holds which permits cannot be known. Stop all members of the domain, delete the "
        "topic and its snapshots, and start them again");
  }
  log_->seek(state_.last + 1);
}

// --- for callers -------------------------------------------------------------------------------------------------------

std::shared_ptr<Limiter> DomainMember::open(const std::string& name, std::int64_t limit, bool outlives_fence,
                                            std::shared_ptr<void> owner) {
  if (limit < 1) {
    throw Error("limiter '" + name + "': a limit of " + std::to_string(limit) +
                " lets nothing run; it must be at least 1 (turnstile limits set pauses a limiter)");
  }
  if (name.empty() || name.size() > tokens::kLongestName || static_cast<Count>(limit) > tokens::kMostPermits) {
    throw Error("limiter '" + name.substr(0, 40) + "': a name has 1 to " + std::to_string(tokens::kLongestName) +
                " characters, and a limit is at most " + std::to_string(tokens::kMostPermits));
  }
  if (static_cast<Count>(limit) <= set_aside()) {
    throw Error("limiter '" + name + "': its limit of " + std::to_string(limit) + " leaves nothing to share, since " +
                std::to_string(settings_.reserve) + " are reserved for each of " +
                std::to_string(settings_.reserve_for) + " processes; raise the limit, or lower limits.reserve");
  }
  const std::lock_guard lock(mutex_);
  Named& named = limiters_[name];
  if (named.gate && named.limit != limit) {
    throw Error("limiter '" + name + "' has a limit of " + std::to_string(named.limit) + " and cannot also have " +
                std::to_string(limit) + "; set the same limit wherever it is named, or name another limiter");
  }
  const bool is_new = !named.gate;
  if (is_new) {
    named.gate = std::make_shared<PermitGate>(now_us, [bell = bell_] { bell->ring(); });
    named.gate->admit(false);  // until the log has it that no fence takes these permits back
    named.limit = named.told_limit = limit;
  }
  if (is_new || (outlives_fence && !named.outlives_fence)) {
    named.outlives_fence = outlives_fence;
    member_.declare(name, static_cast<Count>(limit), settings_.strict, set_aside(), outlives_fence);
    log_->wake();
  }
  const auto limit_now = [this, name, limit, owner = std::move(owner)] {
    const std::lock_guard guard(mutex_);
    const auto entry = state_.limiters.find(name);
    return entry == state_.limiters.end() ? limit : static_cast<std::int64_t>(entry->second.shared());
  };
  return std::make_shared<GateLimiter>(name, named.gate, limit_now, outlives_fence);
}

Count DomainMember::set_aside() const { return Count{settings_.reserve} * settings_.reserve_for; }

/// What this process may use of a limiter while it is cut off, as of the last that it has read; at all other times others know
/// better. Nothing while more is held than is shared, and nothing for those who were not counted on.
Count DomainMember::reserve_of(const std::string& limiter) const {
  const auto entry = state_.limiters.find(limiter);
  if (settings_.reserve == 0 || entry == state_.limiters.end()) return 0;
  const auto own = entry->second.holdings.find(member_.id());
  if (own == entry->second.holdings.end() || own->second.set_aside != set_aside()) return 0;
  if (entry->second.held() > entry->second.shared() || is_beyond_reserve()) return 0;
  return std::min<Count>(settings_.reserve, entry->second.limit() / settings_.reserve_for);
}

bool DomainMember::is_beyond_reserve() const {
  return settings_.reserve > 0 && older_members() >= static_cast<std::ptrdiff_t>(settings_.reserve_for);
}

/// Of those that joined before this one; 0 for who has not joined.
std::ptrdiff_t DomainMember::older_members() const {
  const auto self = state_.members.find(member_.id());
  if (self == state_.members.end()) return 0;
  return std::count_if(state_.members.begin(), state_.members.end(),
                       [&](const auto& m) { return m.second.joined_at < self->second.joined_at; });
}

void DomainMember::on_claimed(const TopicPartition& at, Epoch epoch) {
  {
    const std::lock_guard lock(mutex_);
    member_.claim(partition_of(at), static_cast<std::uint64_t>(epoch.value));
  }
  log_->wake();
}

/// Who has not joined holds nothing; what it is granted later, it is granted after its claims. Without an answer the gates close,
/// and only an answer to what is written after the claims opens them again.
void DomainMember::wait_until_claimed() {
  std::unique_lock lock(mutex_);
  const bool claimed = changed_.wait_for(lock, kLongestClaim, [this] {
    // What was taken from us together with the claims must have reached the gates.
    const bool known = member_.phase() != tokens::Member::Phase::joined || !member_.is_claiming();
    return (known && obeyed_) || stopping_;
  });
  if (claimed) return;
  journal_.warn("the claims of partitions have not come back from " + log_->name() + " for " +
                std::to_string(kLongestClaim.count()) + " ms: nothing starts under a limit until they do");
  member_.distrust(now_us());
  log_->wake();
}

void DomainMember::on_revoked(std::span<const TopicPartition> partitions) {
  {
    const std::lock_guard lock(mutex_);
    std::vector<tokens::Partition> all;
    for (const auto& at : partitions) all.push_back(partition_of(at));
    member_.revoke(all);
  }
  log_->wake();
}

PermitsView DomainMember::permits() const {
  const std::lock_guard lock(mutex_);
  return view_of(state_);
}

bool DomainMember::set_limit(const std::string& limiter, std::optional<std::int64_t> limit, milliseconds timeout) {
  if (limit && (*limit < 0 || static_cast<Count>(*limit) > tokens::kMostPermits)) {
    throw Error("limiter '" + limiter + "': a limit is 0 (pauses it) to " + std::to_string(tokens::kMostPermits) +
                ", not " + std::to_string(*limit));
  }
  const auto change = std::make_shared<Change>();
  change->limiter = limiter;
  change->limit = limit;
  std::unique_lock lock(mutex_);
  changes_.push_back(change);
  log_->wake();
  changed_.wait_until(lock, deadline_after(timeout), [&] { return change->over || stopping_; });
  std::erase(changes_, change);
  if (change->not_allowed) {
    throw Error("limiter '" + limiter + "': the domain did not take its limit: its name is not 1 to " +
                std::to_string(tokens::kLongestName) + " bytes long, or it would be one more than the " +
                std::to_string(tokens::kMostLimiters) + " limiters that the domain can have");
  }
  return change->done;
}

bool DomainMember::wait_until_joined(milliseconds timeout) {
  std::unique_lock lock(mutex_);
  return changed_.wait_until(lock, deadline_after(timeout),
                             [&] { return member_.phase() == tokens::Member::Phase::joined; });
}

std::string DomainMember::halted() const {
  const std::lock_guard lock(mutex_);
  return member_.why_halted();
}

LimitersHealth DomainMember::health() const {
  const std::lock_guard lock(mutex_);
  const auto phase = member_.phase();
  if (phase == tokens::Member::Phase::halted) return {LimitersHealth::State::halted, member_.why_halted()};
  const bool joined = phase == tokens::Member::Phase::joined;
  if (joined && member_.open_until() > now_us()) return {};
  const std::string why = told_failure_.empty() ? std::string() : " (writing failed: " + told_failure_ + ")";
  return {LimitersHealth::State::cut_off,
          (joined ? "nothing that this process wrote to " + log_->name() + " has come back within its lease"
                  : "this process has not joined the token domain of " + log_->name() + " yet") +
              why};
}

// --- the thread --------------------------------------------------------------------------------------------------------

void DomainMember::run() {
  for (;;) {
    try {
      step();
    } catch (const std::exception& error) {
      halt(error.what());
    }
    std::unique_lock lock(mutex_);
    if (member_.phase() == tokens::Member::Phase::halted) changed_.wait(lock, [this] { return stopping_; });
    if (stopping_) break;
  }
  depart();
  const std::lock_guard lock(bell_->mutex);
  bell_->domain = nullptr;
}

void DomainMember::step() {
  milliseconds wait = kLongestWait;
  {
    const std::lock_guard lock(mutex_);
    const Micros now = now_us();
    const Micros tick = std::max(member_.next_tick(), write_again_at_);
    const Micros due = deadline_ == 0 ? tick : std::min(tick, deadline_);
    const Micros left = std::max<Micros>(due - now, 0);
    wait = std::min(wait, std::chrono::ceil<milliseconds>(std::chrono::microseconds(left)));
  }
  const auto records = log_->read(wait);
  const bool failed = log_->failed();  // without the lock: it may open a new producer
  bell_->rung.store(false);
  std::vector<tokens::Order> orders;
  {
    const std::lock_guard lock(mutex_);
    const Micros now = now_us();
    obeyed_ = obeyed_ && records.empty();
    look_at_the_clock(now);
    for (const auto& record : records) take(record, now);
    if (failed) writing_failed(now);
    if (now >= write_again_at_) send_changes();
    orders = pump(now);
    keep_snapshot();
    tell_of_coordination(now);
    if (!records.empty()) tell_of_limits();
    if (member_.phase() == tokens::Member::Phase::halted) journal_.error(member_.why_halted());
  }
  carry_out(std::move(orders));
  if (records.empty()) return;
  {
    const std::lock_guard lock(mutex_);
    obeyed_ = true;
  }
  changed_.notify_all();
}

void DomainMember::look_at_the_clock(Micros now) {
  if (now - last_step_ > kFresh) {
    journal_.warn("this process did not run for " + std::to_string((now - last_step_) / 1'000) +
                  " ms: nothing starts until the token log has been read up to now");
    member_.distrust(now);
  }
  last_step_ = now;
}

/// Goes on in a new epoch: at once the first time, since mostly a broker was away, and later and later while nothing gets through.
void DomainMember::writing_failed(Micros now) {
  member_.sending_failed();
  for (const auto& change : changes_) change->sent = false;
  const std::string why = log_->why_failed();
  if (std::exchange(told_failure_, why) != why)
    journal_.warn("writing to " + log_->name() + " failed: " + why + ". Going on in a new epoch, again and again");
  write_again_at_ = now + write_delay_;
  write_delay_ = std::clamp(2 * write_delay_, kFirstRetry, kLongestRetry);
}

void DomainMember::take(const TokenLog::Record& record, Micros now) {
  if (record.position <= state_.last) return;
  if (record.position != state_.last + 1) {
    throw TokenLogBroken(
        "positions " + std::to_string(state_.last + 1) + " to " + std::to_string(record.position - 1) +
        " are missing in " + log_->name() +
        ": who holds which permits cannot be known any more. Nothing starts in this process; start it again, "
        "so that it begins from a newer snapshot");
  }
  const tokens::Event event = tokens::decode(record.bytes);
  const tokens::Effects effects = tokens::apply(state_, record.position, event);
  if (event.member == member_.id() && write_delay_ > 0) {
    write_delay_ = 0;
    told_failure_.clear();
  }
  member_.read(state_, record.position, event, effects, now);
  for (const auto& change : changes_) {
    if (!change->sent || change->event != event) continue;
    change->done = effects.outcome == tokens::Effects::Outcome::applied;
    change->not_allowed = effects.outcome == tokens::Effects::Outcome::not_allowed;
    // Stale: another change came between, so once more. But what nobody knows cannot be unset.
    change->over =
        change->done || change->not_allowed || (!change->limit && !state_.limiters.contains(change->limiter));
    change->sent = false;
  }
}

/// What the member has to say and to order, after it was told what the gates know.
std::vector<tokens::Order> DomainMember::pump(Micros now) {
  if (gates_.size() != limiters_.size()) {
    gates_.clear();
    for (const auto& [name, named] : limiters_) gates_.push_back({.name = name, .gate = named.gate});
  }
  for (const auto& [name, gate, limit, admits] : gates_) {
    member_.given_back(name, gate->surrendered());
    member_.demand(name, gate->demand());
  }
  if (now >= write_again_at_) {
    member_.tick(state_, now);
    for (const auto& event : member_.take_events()) log_->append(tokens::encode(event));
  }
  return member_.take_orders();
}

/// Without the lock, since a gate calls those who wait. Until nothing moves any more: what a gate surrenders at once is written in
/// the same round.
void DomainMember::carry_out(std::vector<tokens::Order> orders) {
  while (!orders.empty()) {
    for (const auto& order : orders) {
      for (const auto& known : gates_) {
        if (known.name == order.limiter) known.gate->order(order);
      }
    }
    const std::lock_guard lock(mutex_);
    orders = pump(now_us());
  }
  Micros open_until = 0, held_until = 0;
  bool cancel = false;
  {
    const std::lock_guard lock(mutex_);
    const bool knows = member_.phase() == tokens::Member::Phase::joined && member_.open_until() > now_us();
    for (auto& [name, gate, limit, admits] : gates_) {
      if (knows) gate->reserve(reserve_of(name));
      else if (member_.phase() == tokens::Member::Phase::halted) gate->reserve(0);
      const auto entry = state_.limiters.find(name);
      if (entry != state_.limiters.end()) limit = entry->second.shared();
      const auto* holding = state_.holding(name, member_.id());
      admits = holding != nullptr && holding->outlives_fence;
    }
    open_until = std::min(member_.open_until(), last_step_ + kFresh);
    if (member_.open_until() != 0) deadline_ = std::max(deadline_, member_.open_until());
    held_until = deadline_;
    cancel = deadline_ != 0 && now_us() >= deadline_;
    if (cancel) deadline_ = 0;
  }
  for (const auto& [name, gate, limit, admits] : gates_) {
    gate->limit(limit);
    gate->admit(admits);
    if (held_until != 0) gate->held_until(held_until);
    gate->open_until(open_until);
    if (cancel) gate->cancel();
  }
}

void DomainMember::send_changes() {
  for (const auto& change : changes_) {
    if (change->sent || change->over) continue;
    change->sent = true;
    change->event = {.member = random_id(), .epoch = 1, .seq = 1, .body = tokens::Unknown{}};
    tokens::LimitSet body{.limiter = change->limiter, .limit = {}, .seen = state_.last};
    if (change->limit) body.limit = static_cast<Count>(*change->limit);
    change->event.body = body;
    log_->append(tokens::encode(change->event));
  }
}

void DomainMember::keep_snapshot() {
  if (!state_.members.contains(member_.id())) return;
  const std::int64_t every = settings_.snapshot_every;
  if (state_.last >= every && state_.last / every > std::max<std::int64_t>(saved_, 0) / every) {
    if (older_members() < kKeepers) log_->save(state_.last, tokens::save(state_));
    saved_ = state_.last;
  }
  // Below both: a state that two members agree on, and a snapshot that is there.
  const std::int64_t below = std::min(member_.agreed(), log_->saved());
  if (below <= trimmed_) return;
  trimmed_ = below;
  log_->trim(below + 1);
}

/// One line for each change.
void DomainMember::tell_of_coordination(Micros now) {
  if (member_.expired() != told_expired_) {
    told_expired_ = member_.expired();
    journal_.error(
        "the other members have expired this one, since they had heard nothing of it for its lease of " +
        std::to_string(settings_.lease.count()) +
        " ms: the permits that it held are others' now. Handlers that still run under them were asked to stop. "
        "Joining again");
  }
  const bool open = member_.phase() == tokens::Member::Phase::joined && member_.open_until() > now;
  if (open == was_open_) return;
  was_open_ = open;
  if (open) journal_.info("joined the token domain of " + log_->name() + " as member " + std::to_string(member_.id()));
  else if (member_.phase() == tokens::Member::Phase::joined)
    journal_.warn("nothing that this member wrote to " + log_->name() +
                  " has come back within its lease: no handler under a limit starts until it does" +
                  (settings_.reserve == 0 ? ""
                                          : ", but those on the " + std::to_string(settings_.reserve) +
                                                " permits that are reserved for each process"));
  if (settings_.reserve == 0) return;
  std::uint64_t taken = 0;
  for (const auto& known : gates_) taken += known.gate->taken_of_reserve();
  if (open && taken > told_of_reserve_)
    journal_.warn(std::to_string(taken - std::exchange(told_of_reserve_, taken)) +
                  " handlers were started on reserved permits while the token log was out of reach");
  if (open && is_beyond_reserve())
    journal_.warn("the token domain has more members than the " + std::to_string(settings_.reserve_for) +
                  " that limits.reserve_for says: this one has no reserved permits");
}

void DomainMember::tell_of_limits() {
  for (auto& [name, named] : limiters_) {
    const auto entry = state_.limiters.find(name);
    if (entry == state_.limiters.end() || !entry->second.holdings.contains(member_.id())) continue;
    const auto limit = static_cast<std::int64_t>(entry->second.limit());
    if (limit == std::exchange(named.told_limit, limit)) continue;
    const std::string here = "; configured here: " + std::to_string(named.limit);
    const std::string why = entry->second.set      ? ", set by an operator (turnstile limits)" + here
                            : limit == named.limit ? ", as configured"
                                                   : ", the lowest that a member's configuration says" + here;
    journal_.info("limiter '" + name +
                  "': " + (limit == 0 ? "paused" : std::to_string(limit) + " at once over the domain") + why);
  }
}

void DomainMember::halt(const std::string& why) {
  std::vector<tokens::Order> orders;
  {
    const std::lock_guard lock(mutex_);
    member_.halt(why);
    obeyed_ = false;
    orders = member_.take_orders();
    journal_.error(why);
  }
  carry_out(std::move(orders));
  {
    const std::lock_guard lock(mutex_);
    obeyed_ = true;
  }
  changed_.notify_all();
}

/// Gives everything back, unless something still runs: that is left to the lease.
void DomainMember::depart() {
  const std::lock_guard lock(mutex_);
  const bool quiet = std::all_of(limiters_.begin(), limiters_.end(), [](const auto& named) {
    const PermitGate& gate = *named.second.gate;
    return gate.in_use() == 0 && gate.overstaying() == 0 && gate.reserved_in_use() == 0;
  });
  for (const auto& [name, named] : limiters_) named.gate->open_until(0);
  if (!quiet) return;
  member_.leave();
  try {
    for (const auto& event : member_.take_events()) log_->append(tokens::encode(event));
    log_->flush(kFarewell);
  } catch (const std::exception& error) {
    journal_.warn(std::string("leaving the token domain: ") + error.what() +
                  "; what it held comes back with its lease");
  }
}

namespace {

/// What callers hold. A limiter keeps it, and so does a permit; the member leaves when none is left.
class DomainHandle final : public TokenDomain, public std::enable_shared_from_this<DomainHandle> {
 public:
  explicit DomainHandle(std::shared_ptr<DomainMember> member) : member_(std::move(member)) { member_->start(); }
  ~DomainHandle() override { member_->stop(); }
  DomainHandle(const DomainHandle&) = delete;
  DomainHandle& operator=(const DomainHandle&) = delete;

  std::shared_ptr<Limiter> open(const std::string& name, std::int64_t limit) override {
    return member_->open(name, limit, true, shared_from_this());
  }
  std::shared_ptr<Limiter> open_for_partitions(const std::string& name, std::int64_t limit) override {
    return member_->open(name, limit, false, shared_from_this());
  }
  void on_claimed(const TopicPartition& at, Epoch epoch) override { member_->on_claimed(at, epoch); }
  void wait_until_claimed() override { member_->wait_until_claimed(); }
  void on_revoked(std::span<const TopicPartition> partitions) override { member_->on_revoked(partitions); }
  PermitsView permits() const override { return member_->permits(); }
  bool set_limit(const std::string& limiter, std::optional<std::int64_t> limit, milliseconds timeout) override {
    return member_->set_limit(limiter, limit, timeout);
  }
  bool wait_until_joined(milliseconds timeout) override { return member_->wait_until_joined(timeout); }
  std::string halted() const override { return member_->halted(); }
  LimitersHealth health() const override { return member_->health(); }

 private:
  const std::shared_ptr<DomainMember> member_;
};

}  // namespace

std::shared_ptr<TokenDomain> join_token_domain(std::unique_ptr<TokenLog> log, const TokenSettings& settings,
                                               std::shared_ptr<spdlog::logger> logger) {
  if (!logger) logger = make_logger({});
  return std::make_shared<DomainHandle>(std::make_shared<DomainMember>(std::move(log), settings, std::move(logger)));
}

}  // namespace turnstile
