// What callers ask of a running member of a token domain.

#include <fmt/format.h>

#include <algorithm>

#include "message/digest.hpp"
#include "permits/domain_limiter.hpp"
#include "permits/permits_view.hpp"
#include "permits/token_domain.hpp"
#include "support/deadline.hpp"
#include "tokens/parts.hpp"
#include "tokens/planted.hpp"

namespace turnstile::detail {

namespace {

using std::chrono::milliseconds;
using tokens::Count;

/// The name, or its hash if it is longer than a name in the log may be.
std::string short_name(const std::string& name) {
  if (name.size() <= tokens::kLongestName) return name;
  std::string hex;
  for (const auto byte : sha256(name)) hex += fmt::format("{:02x}", byte);
  return hex;
}

/// Only claims of the same group and store follow each other.
bool tells_groups_apart() { return !TURNSTILE_PLANTED(groups_share_partitions); }

}  // namespace

// --- limiters --------------------------------------------------------------------------------------------------------

std::shared_ptr<ports::Limiter> DomainMember::open(const std::string& name, std::int64_t limit, bool outlives_fence,
                                                   Look look) {
  if (limit < 1) {
    throw Error(Code::limit_invalid,
                "limiter '" + name + "': a limit of " + std::to_string(limit) +
                    " lets no handler run; it must be at least 1 (to pause a limiter: turnstile limits set)");
  }
  if (name.empty() || name.size() > tokens::kLongestName || static_cast<Count>(limit) > tokens::kMostPermits) {
    throw Error(Code::limit_invalid, "limiter '" + name.substr(0, 40) + "': a name has 1 to " +
                                         std::to_string(tokens::kLongestName) + " bytes, and a limit is at most " +
                                         std::to_string(tokens::kMostPermits));
  }
  if (static_cast<Count>(limit) <= set_aside()) {
    throw Error(Code::limit_invalid, "limiter '" + name + "': its limit of " + std::to_string(limit) +
                                         " leaves nothing to share: limits.reserve sets " +
                                         std::to_string(settings_.reserve) + " permits aside for each of " +
                                         std::to_string(settings_.reserve_for) +
                                         " processes; raise the limit, or lower limits.reserve");
  }
  const std::lock_guard lock(mutex_);
  if (tokens::is_directory(state_) && !limiters_.contains(name)) return nullptr;
  refuse_one_too_many(name);
  NamedLimiter& named = limiters_[name];
  if (named.pool && named.limit != limit && !named.users.expired()) {
    throw Error(Code::limit_invalid, "limiter '" + name + "' has a limit of " + std::to_string(named.limit) +
                                         " and cannot also have " + std::to_string(limit) +
                                         "; set the same limit wherever you name it, or name another limiter");
  }
  const bool is_new = !named.pool, is_unused = named.users.expired();
  if (is_new) {
    named.bell = std::make_shared<PoolBell>(wake_up_);
    named.pool = std::make_shared<PermitPool>(environment_.clock, [bell = named.bell] {
      bell->now().call_once([](DomainMember& member) { member.log_->wake(); });
    });
    named.pool->admit(false);  // until the log shows that no fence returns these permits
    limiters_changed_ = true;
  }
  auto users = is_unused ? std::make_shared<int>(0) : named.users.lock();
  named.users = users;
  if (is_unused) named.limit = named.reported.limit = limit;
  if (is_unused || (outlives_fence && !named.outlives_fence)) {
    named.outlives_fence = named.outlives_fence || outlives_fence;
    declare(name, named);
  }
  return std::make_shared<DomainLimiter>(
      name, named.pool, [look = std::move(look), users = std::move(users)] { return look(); }, outlives_fence);
}

void DomainMember::declare(const std::string& name, const NamedLimiter& named) {
  member_.declare(name, static_cast<Count>(named.limit), settings_.strict, set_aside(), settings_.reserve,
                  named.outlives_fence);
  log_->wake();
}

ports::LimiterState DomainMember::state_of(const std::string& name, std::int64_t configured) const {
  const std::lock_guard lock(mutex_);
  const auto entry = state_.limiters.find(name);
  if (entry == state_.limiters.end()) return {.limit = configured};
  ports::LimiterState state{.limit = static_cast<std::int64_t>(entry->second.shared())};
  if (const auto* holding = state_.holding(name, member_.id())) {
    // After its lease it holds none: others may have them.
    if (member_.open_until() > now()) state.held = static_cast<std::int64_t>(holding->held());
    state.share = static_cast<std::int64_t>(holding->share);
  }
  return state;
}

std::optional<ports::TokenLogState> DomainMember::log_state() const {
  const std::lock_guard lock(mutex_);
  if (tokens::is_directory(state_) && limiters_.empty()) return std::nullopt;  // it only follows the log
  const tokens::Micros left = std::max<tokens::Micros>(member_.heard_until() - now(), 0);
  const bool joined = member_.phase() == tokens::Member::Phase::joined && behind_.empty();
  ports::TokenLogState state{
      .available = joined && left > 0,
      .lease_left = std::chrono::milliseconds(joined ? left / 1'000 : 0),
      .quiet = std::chrono::milliseconds(std::max<tokens::Micros>(now() - last_step_, 0) / 1'000),
      .epochs = static_cast<std::int64_t>(epochs_)};
  if (const auto end = log_->known_end()) state.unread = std::max<std::int64_t>(*end - 1 - state_.last, 0);
  return state;
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
  throw Error(Code::too_many_limiters, reports_.too_many_limiters(name, most));
}

// --- partitions ------------------------------------------------------------------------------------------------------

tokens::Partition DomainMember::partition_of(const std::string& group, const std::string& store,
                                             const TopicPartition& at) const {
  if (!tells_groups_apart()) return {at.topic, at.partition};
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
void DomainMember::wait_until_claimed(std::chrono::steady_clock::time_point until) {
  std::unique_lock lock(mutex_);
  const bool claimed = changed_.wait_until(lock, until, [this] {
    // Permits that the member lost together with the claims must have left the pools.
    const bool known = member_.phase() != tokens::Member::Phase::joined || !member_.is_claiming();
    return (known && obeyed_) || stopping_;
  });
  if (claimed) return;
  run_log_.warn(Code::token_log_silent, "this member's claims of partitions have not come back from " + log_->name() +
                                            " in time: nothing starts under a limit until they do");
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

// --- the domain ------------------------------------------------------------------------------------------------------

PartView DomainMember::permits() const {
  const std::lock_guard lock(mutex_);
  return part_view_of(state_);
}

std::optional<bool> DomainMember::set_limit(const std::string& limiter, std::optional<std::int64_t> limit,
                                            milliseconds timeout) {
  if (limit && (*limit < 0 || static_cast<Count>(*limit) > tokens::kMostPermits)) {
    throw Error(Code::limit_invalid, "limiter '" + limiter + "': a limit must be from 0 (paused) to " +
                                         std::to_string(tokens::kMostPermits) + ", not " + std::to_string(*limit));
  }
  const auto change = std::make_shared<LimitChange>();
  change->limiter = limiter;
  change->limit = limit;
  std::unique_lock lock(mutex_);
  changes_.add(change);
  log_->wake();
  changed_.wait_until(lock, deadline_after(timeout), [&] { return change->over || stopping_; });
  changes_.remove(change);
  if (change->elsewhere) return std::nullopt;
  if (change->not_allowed) {
    throw Error(Code::too_many_limiters,
                "limiter '" + limiter + "': the domain rejected its limit: the name is not 1 to " +
                    std::to_string(tokens::kLongestName) + " bytes long, or the domain already has its maximum of " +
                    std::to_string(state_.most_limiters()) + " limiters (limits.most_limiters)");
  }
  return change->done;
}

bool DomainMember::wait_until_joined(milliseconds timeout) {
  std::unique_lock lock(mutex_);
  return changed_.wait_until(lock, deadline_after(timeout), [&] {
    const bool only_looks = tokens::is_directory(state_) && limiters_.empty();
    return only_looks || member_.phase() == tokens::Member::Phase::joined;
  });
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
  if (joined && behind_.empty() && member_.heard_until() > now()) return {};
  if (tokens::is_directory(state_) && limiters_.empty()) return {};  // it only follows the log
  const std::string why =
      reports_.write_failure().empty() ? std::string() : " (writing failed: " + reports_.write_failure() + ")";
  return {
      LimitersHealth::State::cut_off,
      (!joined ? "this process has not joined the token domain of " + log_->name() + " yet"
       : member_.is_catching_up(now())
           ? "this process was suspended, or waited for the log, and has not read " + log_->name() + " up to now yet"
           : "nothing that this process wrote to " + log_->name() + " has come back within its lease") +
          why};
}

}  // namespace turnstile::detail
