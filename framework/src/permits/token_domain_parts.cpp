// A member of a part of a divided log (tokens/parts.hpp).

#include <limits>
#include <utility>

#include "permits/token_domain.hpp"
#include "tokens/parts.hpp"
#include "tokens/wire.hpp"

namespace turnstile::detail {

namespace {

/// How long an Opened may be under way before it is written again. One member writes it at once, the others after this.
constexpr tokens::Micros kOpenAgain = 1'000'000;

/// As a new pool. Callers that wait stay in its line.
void empty(const MemberPool& known) {
  known.pool->open_until(0);
  known.pool->reserve(0);
  known.pool->order({.kind = tokens::Order::Kind::forfeit, .limiter = known.name, .total = 0});
  known.pool->held_until(std::numeric_limits<tokens::Micros>::max());
}

}  // namespace

// --- the directory ---------------------------------------------------------------------------------------------------

std::uint32_t DomainMember::parts() const {
  const std::lock_guard lock(mutex_);
  return state_.parts;
}

tokens::State DomainMember::first_state_of(std::uint32_t part) const {
  const std::lock_guard lock(mutex_);
  return tokens::first_state(state_, part);
}

std::shared_ptr<const tokens::Openings> DomainMember::openings() {
  const std::lock_guard lock(mutex_);
  return openings_.of(state_);
}

/// A limiter leaves when nobody has permits of it here. The thread calls it after it has carried out all orders, and its
/// pool gets no more of them from here, not even if this member halts in its next round. Returns whether there is news
/// for on_moved().
bool DomainMember::let_move() {
  bool is_news = false;
  std::vector<MemberPool> leaving;
  {
    const std::lock_guard lock(mutex_);
    if (!tokens::is_directory(state_)) return false;
    is_news = std::exchange(moved_until_, state_.last) != state_.last;
    if (limiters_.empty()) return is_news;
    const auto openings = openings_.of(state_);
    for (auto& [name, named] : limiters_) {
      if (named.home == 0) named.home = tokens::part_of(name, state_.parts);
      if (openings->contains(named.home) && named.pool->in_use() + named.pool->reserved_in_use() == 0)
        leaving.push_back({.name = name, .pool = named.pool});
    }
  }
  // On this thread and without a lock: stop callbacks of permits that were given back run here, and one of them may drop
  // the last reference to the domain.
  for (const MemberPool& known : leaving) empty(known);
  const std::lock_guard lock(mutex_);
  for (const MemberPool& known : leaving) {
    member_.undeclare(known.name, now());
    moved_.insert(limiters_.extract(known.name));
    limiters_changed_ = true;
  }
  if (limiters_changed_) {
    std::erase_if(pools_, [&](const MemberPool& known) { return moved_.contains(known.name); });
    loss_->watch(pools_);
    changed_.notify_all();
  }
  return is_news || !moved_.empty();
}

NamedLimiters DomainMember::take_moved() {
  const std::lock_guard lock(mutex_);
  return std::exchange(moved_, {});
}

// --- a halt of the whole log -----------------------------------------------------------------------------------------

/// Part 0 tells where limiters live, so no part can do without it.
std::string DomainMember::why_all_must_halt() const {
  const std::lock_guard lock(mutex_);
  return state_.part > 0 && member_.was_rejected() ? std::string() : member_.why_halted();
}

void DomainMember::request_halt(const std::string& why) {
  {
    const std::lock_guard lock(mutex_);
    if (!halt_requested_.empty() || member_.phase() == tokens::Member::Phase::halted) return;
    halt_requested_ = why;
  }
  log_->wake();
}

/// The member that halted first has reported the reason.
bool DomainMember::halt_if_requested() {
  std::string why;
  {
    const std::lock_guard lock(mutex_);
    if (halt_requested_.empty() || member_.phase() == tokens::Member::Phase::halted) return false;
    why = halt_requested_;
  }
  run_log_.error(Code::member_halted, log_->name() +
                                          ": no handler starts under its limits any more, because another part "
                                          "of the token log has halted" +
                                          settings_at_stake());
  halt(why);
  return true;
}

// --- the other parts -------------------------------------------------------------------------------------------------

bool DomainMember::uses(const std::string& limiter) const {
  const std::lock_guard lock(mutex_);
  return limiters_.contains(limiter);
}

bool DomainMember::is_closed() const {
  const std::lock_guard lock(mutex_);
  return state_.closed;
}

void DomainMember::adopt(NamedLimiters limiters) {
  for (auto& [name, named] : limiters) {
    named.bell->move_to(wake_up_);
    named.pool->admit(false);  // until the log shows that no fence returns these permits
  }
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [name, named] : limiters) declare(name, named);
    limiters_.merge(limiters);
    limiters_changed_ = true;
  }
  log_->wake();
}

void DomainMember::open_part(tokens::Opened opened) {
  {
    const std::lock_guard lock(mutex_);
    if (to_open_) return;
    to_open_ = std::move(opened);
    open_at_ = now() + kOpenAgain;
  }
  log_->wake();
}

void DomainMember::say_opened(tokens::Micros now) {
  if (!state_.closed || !to_open_ || member_.phase() != tokens::Member::Phase::joined) return;
  const bool is_first = !opened_said_ && state_.members.begin()->first == member_.id();
  if (now < open_at_ && !is_first) return;
  opened_said_ = true;
  log_->append(tokens::encode({.member = environment_.next_id(), .epoch = 1, .seq = 1, .body = *to_open_}));
  open_at_ = now + kOpenAgain;
}

}  // namespace turnstile::detail
