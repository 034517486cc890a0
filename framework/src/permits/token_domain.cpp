#include "permits/token_domain.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <random>

#include "message/digest.hpp"
#include "permits/domain_limiter.hpp"
#include "permits/permits_view.hpp"
#include "support/deadline.hpp"
#include "support/process_name.hpp"
#include "tokens/planted.hpp"
#include "tokens/snapshot.hpp"
#include "tokens/wire.hpp"
#include "turnstile/lease_clock.hpp"
#include "turnstile/log.hpp"

namespace turnstile {

namespace {

using std::chrono::milliseconds;
using tokens::Count;
using tokens::Micros;

/// The longest time between two rounds of the thread.
constexpr milliseconds kLongestWait{50};
/// After a longer pause between rounds, the process may have been suspended, and its permits may have been reassigned.
constexpr Micros kFresh = 1'000'000;
/// How long a rebalance waits for the claims of its partitions to be read back.
constexpr milliseconds kLongestClaim{10'000};
/// After a failed write, the first retry is immediate. Then the delay doubles from the first value to the second.
constexpr Micros kFirstRetry = 100'000, kLongestRetry = 5'000'000;
/// How long leaving the domain may take.
constexpr milliseconds kFarewell{2'000};
/// How many members store snapshots. They are the oldest ones; the second covers an outage of the first.
constexpr std::ptrdiff_t kSnapshotWriters = 2;

Micros now_us() { return LeaseClock::now_us(); }

tokens::MemberId random_id() {
  std::random_device random;
  return (tokens::MemberId{random()} << 32 | random()) | 1;
}

std::uint32_t milliseconds_of(milliseconds time) {
  constexpr milliseconds longest{std::numeric_limits<std::uint32_t>::max()};
  return static_cast<std::uint32_t>(std::clamp(time, milliseconds{0}, longest).count());
}

tokens::MemberSettings member_settings(const TokenSettings& settings, const DomainEnvironment& environment) {
  tokens::MemberSettings member;
  member.about = {.host = host_name(),
                  .pid = static_cast<std::uint32_t>(::getpid()),
                  .client = settings.client.substr(0, tokens::kLongestName),
                  .lease_ms = static_cast<std::uint32_t>(settings.lease.count()),
                  .weight = settings.weight,
                  .knows = environment.knows,
                  .reserve_ms = settings.reserve > 0 ? milliseconds_of(settings.reserve_time) : 0,
                  .most_limiters = settings.most_limiters};
  member.next_id = environment.next_id;
  member.turn = std::chrono::microseconds(settings.turn).count();
  member.checkpoint_every = settings.snapshot_every;
  return member;
}

/// The name, or its hash if it is longer than a name in the log may be.
std::string short_name(const std::string& name) {
  if (name.size() <= tokens::kLongestName) return name;
  std::string hex;
  for (const auto byte : sha256(name)) hex += fmt::format("{:02x}", byte);
  return hex;
}

}  // namespace

DomainEnvironment DomainEnvironment::of_this_process() { return {.clock = now_us, .next_id = random_id}; }

DomainMember::DomainMember(std::unique_ptr<TokenLog> log, const TokenSettings& settings,
                           std::shared_ptr<spdlog::logger> logger, DomainEnvironment environment)
    : settings_(settings),
      environment_(std::move(environment)),
      run_log_(std::move(logger), own_name(settings.client.substr(0, tokens::kLongestName))),
      log_(std::move(log)),
      member_(member_settings(settings, environment_)) {
  state_ = newest_state();
  log_->seek(state_.last + 1);
}

void DomainMember::attach() {
  wake_up_->attach(*this);
  last_step_ = now();
}

void DomainMember::detach() { wake_up_->detach(); }

void DomainMember::start() {
  attach();
  thread_ = std::thread([self = shared_from_this()] { self->run(); });
}

void DomainMember::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  log_->wake();
  // The caller may run on this very thread: a callback can drop the last reference.
  if (thread_.get_id() == std::this_thread::get_id()) thread_.detach();
  else thread_.join();
}

// --- for callers -----------------------------------------------------------------------------------------------------

std::shared_ptr<Limiter> DomainMember::open(const std::string& name, std::int64_t limit, bool outlives_fence,
                                            std::shared_ptr<void> owner) {
  if (limit < 1) {
    throw Error(Code::limit_invalid,
                "limiter '" + name + "': a limit of " + std::to_string(limit) +
                    " lets nothing run; it must be at least 1 (turnstile limits set pauses a limiter)");
  }
  if (name.empty() || name.size() > tokens::kLongestName || static_cast<Count>(limit) > tokens::kMostPermits) {
    throw Error(Code::limit_invalid, "limiter '" + name.substr(0, 40) + "': a name has 1 to " +
                                         std::to_string(tokens::kLongestName) + " characters, and a limit is at most " +
                                         std::to_string(tokens::kMostPermits));
  }
  if (static_cast<Count>(limit) <= set_aside()) {
    throw Error(Code::limit_invalid, "limiter '" + name + "': its limit of " + std::to_string(limit) +
                                         " leaves nothing to share, since " + std::to_string(settings_.reserve) +
                                         " are reserved for each of " + std::to_string(settings_.reserve_for) +
                                         " processes; raise the limit, or lower limits.reserve");
  }
  const std::lock_guard lock(mutex_);
  refuse_one_too_many(name);
  Named& named = limiters_[name];
  if (named.pool && named.limit != limit && !named.users.expired()) {
    throw Error(Code::limit_invalid, "limiter '" + name + "' has a limit of " + std::to_string(named.limit) +
                                         " and cannot also have " + std::to_string(limit) +
                                         "; set the same limit wherever it is named, or name another limiter");
  }
  const bool is_new = !named.pool, is_unused = named.users.expired();
  if (is_new) {
    named.pool = std::make_shared<PermitPool>(environment_.clock, [wake_up = wake_up_] {
      wake_up->call_once([](DomainMember& member) { member.log_->wake(); });
    });
    named.pool->admit(false);  // until the log shows that no fence returns these permits
    limiters_changed_ = true;
  }
  auto users = is_unused ? std::make_shared<int>(0) : named.users.lock();
  named.users = users;
  if (is_unused) named.limit = named.told_limit = limit;
  if (is_unused || (outlives_fence && !named.outlives_fence)) {
    named.outlives_fence = named.outlives_fence || outlives_fence;
    member_.declare(name, static_cast<Count>(limit), settings_.strict, set_aside(), settings_.reserve, outlives_fence);
    log_->wake();
  }
  const auto limit_now = [this, name, limit, owner = std::move(owner), users = std::move(users)] {
    const std::lock_guard guard(mutex_);
    const auto entry = state_.limiters.find(name);
    return entry == state_.limiters.end() ? limit : static_cast<std::int64_t>(entry->second.shared());
  };
  return std::make_shared<DomainLimiter>(name, named.pool, limit_now, outlives_fence);
}

Count DomainMember::set_aside() const { return Count{settings_.reserve} * settings_.reserve_for; }

/// Throws if the limiter is new, and the domain has the largest number of limiters already, as far as this process
/// knows.
void DomainMember::refuse_one_too_many(const std::string& name) const {
  if (limiters_.contains(name) || state_.limiters.contains(name)) return;
  const auto ours = std::count_if(limiters_.begin(), limiters_.end(),
                                  [&](const auto& named) { return !state_.limiters.contains(named.first); });
  const std::size_t most = std::max<std::size_t>(state_.most_limiters(), settings_.most_limiters);
  if (state_.limiters.size() + static_cast<std::size_t>(ours) < most) return;
  throw Error(Code::too_many_limiters, too_many_limiters(name, most));
}

/// How many permits of the reserve this process may use while it cannot reach the log, by the last records that it has
/// read. It gets less than it has reserved if the limit was lowered: held and reserved permits must fit together.
Count DomainMember::reserve_of(const std::string& name) const {
  const Count reserved = member_.reserved(state_, name);
  if (reserved == 0) return 0;
  const tokens::LimiterEntry& limiter = state_.limiters.find(name)->second;
  const Count room = limiter.limit() - std::min(limiter.limit(), limiter.held());
  return room >= limiter.reserved ? reserved : reserved * room / limiter.reserved;
}

/// How many members joined before this one. 0 if it has not joined.
std::ptrdiff_t DomainMember::older_members() const {
  const auto self = state_.members.find(member_.id());
  if (self == state_.members.end()) return 0;
  return std::count_if(state_.members.begin(), state_.members.end(),
                       [&](const auto& m) { return m.second.joined_at < self->second.joined_at; });
}

tokens::Partition DomainMember::partition_of(const std::string& group, const std::string& store,
                                             const TopicPartition& at) const {
  if (TURNSTILE_PLANTED(groups_share_partitions)) return {at.topic, at.partition};
  return {at.topic, at.partition, short_name(group), short_name(store)};
}

void DomainMember::on_claimed(const std::string& group, const std::string& store, const TopicPartition& at,
                              Epoch epoch) {
  {
    const std::lock_guard lock(mutex_);
    const tokens::Partition claimed = partition_of(group, store, at);
    tokens::Partition& known = claimed_[{group, at}];
    if (!known.topic.empty() && known != claimed) member_.revoke({known});
    known = claimed;
    member_.claim(claimed, static_cast<std::uint64_t>(epoch.value));
  }
  log_->wake();
}

/// A member that has not joined holds nothing, and permits that it gets later are granted after its claims. On a
/// timeout the pools close. Only a record that was written after the claims opens them again.
void DomainMember::wait_until_claimed() {
  std::unique_lock lock(mutex_);
  const bool claimed = changed_.wait_for(lock, kLongestClaim, [this] {
    // Permits that the member lost together with the claims must have left the pools.
    const bool known = member_.phase() != tokens::Member::Phase::joined || !member_.is_claiming();
    return (known && obeyed_) || stopping_;
  });
  if (claimed) return;
  run_log_.warn(Code::token_log_silent, "this member's claims of partitions have not come back from " + log_->name() +
                                            " for " + std::to_string(kLongestClaim.count()) +
                                            " ms: nothing starts under a limit until they do");
  member_.distrust(now());
  log_->wake();
}

void DomainMember::on_revoked(const std::string& group, std::span<const TopicPartition> partitions) {
  {
    const std::lock_guard lock(mutex_);
    std::vector<tokens::Partition> all;
    for (const auto& at : partitions) {
      if (const auto known = claimed_.extract({group, at})) all.push_back(known.mapped());
    }
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
    throw Error(Code::limit_invalid, "limiter '" + limiter + "': a limit is 0 (pauses it) to " +
                                         std::to_string(tokens::kMostPermits) + ", not " + std::to_string(*limit));
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
    throw Error(Code::too_many_limiters,
                "limiter '" + limiter + "': the domain did not take its limit: its name is not 1 to " +
                    std::to_string(tokens::kLongestName) + " bytes long, or it would be one more than the " +
                    std::to_string(state_.most_limiters()) + " limiters that the domain can have");
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

// --- the thread ------------------------------------------------------------------------------------------------------

void DomainMember::run() {
  for (;;) {
    round();
    std::unique_lock lock(mutex_);
    if (member_.phase() == tokens::Member::Phase::halted) changed_.wait(lock, [this] { return stopping_; });
    if (!behind_.empty()) changed_.wait_for(lock, kLongestWait, [this] { return stopping_; });
    if (stopping_) break;
  }
  depart();
  detach();
}

void DomainMember::round() {
  try {
    step();
  } catch (const TokenLogTrimmed& trimmed) {
    if (TURNSTILE_PLANTED(trimmed_is_broken)) return halt(trimmed.code(), trimmed.what());
    const std::lock_guard lock(mutex_);
    behind_ = trimmed.what();
  } catch (const TokenLogBroken& broken) {
    halt(broken.code(), broken.what() + settings_at_stake());
  } catch (const std::exception& error) {
    halt(code_of(error, Code::member_halted), error.what());
  }
}

Micros DomainMember::due() const {
  const std::lock_guard lock(mutex_);
  const Micros tick = std::max(member_.next_tick(), write_again_at_);
  Micros due = behind_.empty() ? tick : begin_anew_at_;
  for (const Micros deadline : {deadline_, reserve_deadline_}) {
    if (deadline != 0) due = std::min(due, deadline);
  }
  return due;
}

void DomainMember::step() {
  const Micros left = std::max<Micros>(due() - now(), 0);
  const auto wait = std::min(kLongestWait, std::chrono::ceil<milliseconds>(std::chrono::microseconds(left)));
  if (!behind_.empty() && now() >= begin_anew_at_) begin_anew(now());
  const auto records = behind_.empty() ? log_->read(wait) : std::vector<TokenLog::Record>{};
  const bool failed = log_->failed();  // without the lock: it may open a new producer
  wake_up_->heard();
  std::vector<tokens::Order> orders;
  {
    const std::lock_guard lock(mutex_);
    const Micros at = now();
    obeyed_ = obeyed_ && records.empty();
    look_at_the_clock(at);
    for (const auto& record : records) take(record, at);
    if (failed) writing_failed(at);
    if (at >= write_again_at_ && behind_.empty()) send_changes();
    drop_unused(at);
    orders = pump(at);
    keep_snapshot();
    tell_of_coordination(at);
    if (!records.empty()) tell_of_limits();
    if (member_.phase() == tokens::Member::Phase::halted) run_log_.error(Code::member_halted, member_.why_halted());
  }
  carry_out(std::move(orders));
  if (records.empty()) return;
  {
    const std::lock_guard lock(mutex_);
    obeyed_ = true;
  }
  changed_.notify_all();
}

/// Drops limiters without permits in use and without users, so that other names can take their places.
void DomainMember::drop_unused(Micros at) {
  std::erase_if(limiters_, [&](const auto& of) {
    const auto& [name, named] = of;
    const PermitPool& pool = *named.pool;
    if (!named.users.expired() || pool.in_use() + pool.overstaying() + pool.reserved_in_use() + pool.waiting() > 0)
      return false;
    member_.undeclare(name, at);
    limiters_changed_ = true;
    return true;
  });
}

void DomainMember::look_at_the_clock(Micros now) {
  if (now - last_step_ > kFresh) {
    run_log_.warn(Code::member_paused,
                  "this process did not look at the token log for " + std::to_string((now - last_step_) / 1'000) +
                      " ms (it was paused, or a call hung): nothing starts until it has read the log up to now");
    member_.distrust(now);
  }
  last_step_ = now;
}

/// Continues in a new epoch. The first retry is immediate, because usually a broker was unavailable for a moment. The
/// delay grows while nothing is written.
void DomainMember::writing_failed(Micros now) {
  member_.sending_failed();
  for (const auto& change : changes_) change->sent = false;
  const std::string why = log_->why_failed();
  if (std::exchange(told_failure_, why) != why)
    run_log_.warn(Code::token_log_write_failed,
                  "Write to " + log_->name() + " failed: " + why + ". Retrying with a new producer epoch");
  write_again_at_ = now + write_delay_;
  write_delay_ = std::clamp(2 * write_delay_, kFirstRetry, kLongestRetry);
}

void DomainMember::take(const TokenLog::Record& record, Micros now) {
  if (record.position <= state_.last) return;
  if (record.position != state_.last + 1) {
    throw TokenLogTrimmed("positions " + std::to_string(state_.last + 1) + " to " +
                          std::to_string(record.position - 1) + " are missing in " + log_->name());
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
    // Stale: another change came between, so it is repeated. But an unknown limiter cannot be unset.
    change->over =
        change->done || change->not_allowed || (!change->limit && !state_.limiters.contains(change->limiter));
    change->sent = false;
  }
}

/// Passes the state of the pools to the member, and returns its orders and writes its events.
std::vector<tokens::Order> DomainMember::pump(Micros now) {
  if (std::exchange(limiters_changed_, false)) {
    pools_.clear();
    for (const auto& [name, named] : limiters_) pools_.push_back({.name = name, .pool = named.pool});
  }
  for (const auto& [name, pool, limit, admits] : pools_) {
    member_.given_back(name, pool->surrendered());
    member_.demand(name, pool->demand());
  }
  if (now >= write_again_at_ && behind_.empty()) {
    member_.tick(state_, now);
    for (const auto& event : member_.take_events()) log_->append(tokens::encode(event));
  }
  return member_.take_orders();
}

/// Runs without the lock, because a pool calls waiting callers. Repeats until no order is left, so that permits that a
/// pool surrenders at once are written in the same round.
void DomainMember::carry_out(std::vector<tokens::Order> orders) {
  while (!orders.empty()) {
    for (const auto& order : orders) {
      for (const auto& known : pools_) {
        if (known.name == order.limiter) known.pool->order(order);
      }
    }
    const std::lock_guard lock(mutex_);
    orders = pump(now());
  }
  Micros open_until = 0, held_until = 0, reserve_until = 0;
  bool cancel = false;
  {
    const std::lock_guard lock(mutex_);
    const bool knows = member_.phase() == tokens::Member::Phase::joined && member_.open_until() > now();
    reserve_deadline_ = std::max(reserve_deadline_, member_.reserve_until());
    reserve_until = member_.phase() == tokens::Member::Phase::halted ? 0 : reserve_deadline_;
    for (auto& [name, pool, limit, admits] : pools_) {
      if (knows) pool->reserve(reserve_of(name));
      const auto entry = state_.limiters.find(name);
      if (entry != state_.limiters.end()) limit = entry->second.shared();
      const auto* holding = state_.holding(name, member_.id());
      admits = holding != nullptr && holding->outlives_fence;
    }
    open_until = std::min(member_.open_until(), last_step_ + kFresh);
    if (member_.open_until() != 0) deadline_ = std::max(deadline_, member_.open_until());
    held_until = deadline_;
    cancel = deadline_ != 0 && now() >= deadline_;
    if (cancel) deadline_ = 0;
    if (reserve_deadline_ != 0 && now() >= reserve_deadline_) reserve_deadline_ = 0;
  }
  for (const auto& [name, pool, limit, admits] : pools_) {
    pool->limit(limit);
    pool->admit(admits);
    if (held_until != 0) pool->held_until(held_until);
    pool->open_until(open_until);
    if (cancel) pool->cancel();
    pool->reserve_until(reserve_until);
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
    if (older_members() < kSnapshotWriters) log_->save(state_.last, tokens::save(state_));
    saved_ = state_.last;
  }
  // Below both: a state that two members agree on, and a stored snapshot.
  const std::int64_t below = std::min(member_.agreed(), log_->saved());
  if (below <= trimmed_) return;
  trimmed_ = below;
  log_->trim(below + 1);
}

void DomainMember::halt(Code code, const std::string& why) {
  std::vector<tokens::Order> orders;
  {
    const std::lock_guard lock(mutex_);
    member_.halt(why);
    obeyed_ = false;
    orders = member_.take_orders();
    run_log_.error(code, why);
  }
  carry_out(std::move(orders));
  {
    const std::lock_guard lock(mutex_);
    obeyed_ = true;
  }
  changed_.notify_all();
}

/// Returns everything. If something still runs, the lease returns its permits.
void DomainMember::depart() {
  const std::lock_guard lock(mutex_);
  const bool quiet = std::all_of(limiters_.begin(), limiters_.end(), [](const auto& named) {
    const PermitPool& pool = *named.second.pool;
    return pool.in_use() == 0 && pool.overstaying() == 0 && pool.reserved_in_use() == 0;
  });
  for (const auto& [name, named] : limiters_) named.pool->open_until(0);
  if (!quiet) return;
  member_.leave();
  try {
    for (const auto& event : member_.take_events()) log_->append(tokens::encode(event));
    log_->flush(kFarewell);
  } catch (const std::exception& error) {
    run_log_.warn(
        Code::token_log_write_failed,
        std::string("This member could not report that it leaves the token domain; its permits return when its "
                    "lease ends: ") +
            error.what());
  }
}

}  // namespace turnstile
