#include "permits/token_domain.hpp"

#include <algorithm>
#include <utility>

#include "support/process_name.hpp"
#include "tokens/planted.hpp"
#include "tokens/wire.hpp"
#include "turnstile/log.hpp"

namespace turnstile::detail {

namespace {

using std::chrono::milliseconds;
using tokens::Count;
using tokens::Micros;

/// The longest time between two rounds of the thread.
constexpr milliseconds kLongestWait{50};
/// How often it looks whether the last record that it had read has come again.
constexpr Micros kLook = 50'000;
/// After a longer pause between rounds, the process may have been suspended, and its permits may have been reassigned.
constexpr Micros kFresh = 1'000'000;
/// After a failed write, the first retry is immediate. Then the delay doubles from the first value to the second.
constexpr Micros kFirstRetry = 100'000, kLongestRetry = 5'000'000;
/// How long leaving the domain may take.
constexpr milliseconds kFarewell{2'000};
/// How long a new member of part 0 waits until it has read what the log had at the start. A log can end with positions
/// that are read only with the next record.
constexpr Micros kCatchUp = 2'000'000;
/// A member that was cut off while the log was trimmed joins again.
bool continues_after_trimming() { return !TURNSTILE_PLANTED(trimmed_is_broken); }

}  // namespace

DomainMember::DomainMember(std::unique_ptr<ports::TokenLog> log, const TokenSettings& settings,
                           std::shared_ptr<spdlog::logger> logger, DomainEnvironment environment,
                           const tokens::State& first)
    : settings_(settings),
      environment_(std::move(environment)),
      run_log_(std::move(logger), own_name(settings.client.substr(0, tokens::kLongestName))),
      log_(std::move(log)),
      snapshots_(*log_, run_log_, settings.snapshot_every),
      reports_(*log_, run_log_, settings),
      member_(member_settings(settings, environment_, log_->name())),
      loss_(std::make_shared<LossWatch>(environment_.clock)) {
  state_ = snapshots_.newest(first);
  log_->seek(state_.last + 1);
  if (state_.part > 0) return;
  // A directory that needs no members ignores a Joined, and nobody would ever delete it there.
  first_end_ = log_->end();
  if (state_.last + 1 < first_end_) write_again_at_ = now() + kCatchUp;
}

void DomainMember::attach() {
  wake_up_->attach(*this);
  last_step_ = now();
}

void DomainMember::detach() { wake_up_->detach(); }

void DomainMember::start() {
  attach();
  loss_->start();
  thread_ = std::thread([self = shared_from_this()] { self->run(); });
}

void DomainMember::request_stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  log_->wake();
}

void DomainMember::stop() {
  request_stop();
  // The caller may run on this very thread: a callback can drop the last reference.
  if (thread_.get_id() == std::this_thread::get_id()) thread_.detach();
  else thread_.join();
  loss_->stop();
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
    if (!halt_if_requested()) step();
  } catch (const TokenLogTrimmed& trimmed) {
    if (continues_after_trimming()) {
      const std::lock_guard lock(mutex_);
      behind_ = trimmed.what();
    } else {
      halt(trimmed.what(), trimmed.code());
    }
  } catch (const TokenLogBroken& broken) {
    halt(broken.what() + settings_at_stake(), broken.code());
  } catch (const std::exception& error) {
    halt(error.what(), code_of(error, Code::member_halted));
  }
  if (on_halted_ && member_.phase() == tokens::Member::Phase::halted) std::exchange(on_halted_, {})();
}

Micros DomainMember::due() const {
  const std::lock_guard lock(mutex_);
  const Micros tick = std::max(member_.next_tick(), write_again_at_);
  Micros due = !behind_.empty() ? begin_anew_at_ : same_log_.is_silent(now()) ? last_step_ + kLook : tick;
  for (const Micros deadline : {loss_->held_until(), reserve_deadline_}) {
    if (deadline != 0) due = std::min(due, deadline);
  }
  return due;
}

void DomainMember::step() {
  const Micros left = std::max<Micros>(due() - now(), 0);
  const auto wait = std::min(kLongestWait, std::chrono::ceil<milliseconds>(std::chrono::microseconds(left)));
  if (!behind_.empty() && now() >= begin_anew_at_) begin_anew(now());
  if (behind_.empty() && same_log_.is_doubtful()) log_->seek(same_log_.look_again(state_.last, *log_));
  auto records = behind_.empty() ? log_->read(wait) : std::vector<ports::TokenLog::Record>{};
  const bool failed = log_->failed();  // without the lock: it may open a new producer
  wake_up_->heard();
  std::vector<tokens::Order> orders;
  {
    const std::lock_guard lock(mutex_);
    const Micros at = now();
    look_at_the_clock(at);
    if (same_log_.is_doubtful()) records.clear();  // they are read again
    obeyed_ = obeyed_ && records.empty();
    for (const auto& record : records) take(record, at);
    if (!records.empty()) same_log_.applied(std::move(records.back()));
    if (failed) writing_failed(at);
    if (may_write(at)) {
      changes_.send(*log_, state_, at);
      say_opened(at);
    }
    drop_unused(at);
    orders = pump(at);
    snapshots_.keep(state_, member_);
    report(at, !records.empty());
    if (member_.phase() == tokens::Member::Phase::halted) run_log_.error(Code::member_halted, member_.why_halted());
  }
  carry_out(std::move(orders));
  if (on_moved_ && let_move()) on_moved_();
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
    same_log_.doubt(now + kFresh);  // what it would write of other members is out of date
  }
  last_step_ = now;
}

/// Continues in a new epoch. The first retry is immediate, because usually a broker was unavailable for a moment. The
/// delay grows while nothing is written.
void DomainMember::writing_failed(Micros now) {
  member_.sending_failed();
  ++epochs_;
  changes_.repeat();
  reports_.write_failed(log_->why_failed());
  write_again_at_ = now + write_delay_;
  write_delay_ = std::clamp(2 * write_delay_, kFirstRetry, kLongestRetry);
}

void DomainMember::take(const ports::TokenLog::Record& record, Micros now) {
  same_log_.read(record, *log_);
  if (record.position <= state_.last) return;
  if (record.position != state_.last + 1) {
    throw TokenLogTrimmed("positions " + std::to_string(state_.last + 1) + " to " +
                          std::to_string(record.position - 1) + " are missing in " + log_->name());
  }
  if (record.position + 1 == first_end_) write_again_at_ = 0;
  const tokens::Event event = tokens::decode(record.bytes);
  const tokens::Effects effects = tokens::apply(state_, record.position, event);
  if (event.member == member_.id() && write_delay_ > 0) {
    write_delay_ = 0;
    reports_.written();
  }
  member_.read(state_, record.position, event, effects, now);
  changes_.read(event, effects, state_, now);
}

bool DomainMember::may_write(Micros now) const {
  return now >= write_again_at_ && behind_.empty() && !same_log_.is_silent(now);
}

/// Passes the state of the pools to the member, and returns its orders and writes its events.
std::vector<tokens::Order> DomainMember::pump(Micros now) {
  if (std::exchange(limiters_changed_, false)) {
    pools_.clear();
    for (const auto& [name, named] : limiters_) pools_.push_back({.name = name, .pool = named.pool});
    loss_->watch(pools_);
  }
  for (const auto& [name, pool, limit, admits] : pools_) {
    member_.given_back(name, pool->surrendered());
    member_.demand(name, pool->demand());
  }
  if (may_write(now)) {
    member_.tick(state_, now);
    for (const auto& event : member_.take_events()) log_->append(tokens::encode(event));
  }
  return member_.take_orders();
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
    loss_->extend(member_.open_until());
    held_until = loss_->held_until();
    if (reserve_deadline_ != 0 && now() >= reserve_deadline_) reserve_deadline_ = 0;
  }
  for (const auto& [name, pool, limit, admits] : pools_) {
    pool->limit(limit);
    pool->admit(admits);
    if (held_until != 0) pool->held_until(held_until);
    pool->open_until(open_until);
    pool->reserve_until(reserve_until);
  }
  loss_->reserve_until(reserve_until > now() ? reserve_until : 0);
  loss_->look();
}

void DomainMember::report(Micros now, bool state_changed) {
  reports_.expired(member_.expired());
  const bool open = member_.phase() == tokens::Member::Phase::joined && member_.heard_until() > now;
  if (std::exchange(heard_, open) != open && !open) same_log_.doubt();
  // A process that was suspended has logged it, and usually hears of the log in a moment. That is no silence of the log.
  if (reports_.is_news(open) && !member_.is_catching_up(now)) {
    Count reserved = 0;
    for (const auto& [name, named] : limiters_) reserved += reserve_of(name);
    std::uint64_t taken = 0;
    for (const auto& known : pools_) taken += known.pool->taken_of_reserve();
    reports_.opened_or_closed(open, member_, reserved, taken);
  }
  if (!state_changed) return;
  for (auto& [name, named] : limiters_) reports_.limiter(name, named.limit, named.reported, state_, member_);
}

void DomainMember::halt(const std::string& why, std::optional<Code> code) {
  if (code) run_log_.error(code.value(), why);
  std::vector<tokens::Order> orders;
  {
    const std::lock_guard lock(mutex_);
    member_.halt(why);
    obeyed_ = false;
    orders = member_.take_orders();
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

}  // namespace turnstile::detail
