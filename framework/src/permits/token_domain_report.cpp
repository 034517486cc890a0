// The reports of a member of a token domain: log lines, errors, and its health.

#include "permits/token_domain.hpp"

namespace turnstile {

std::string DomainMember::too_many_limiters(const std::string& name, std::size_t most) const {
  return "limiter '" + name + "': the token domain of " + log_->name() + " has " + std::to_string(most) +
         " limiters, which is the maximum (limits.most_limiters), so that this one would never give a permit. Raise "
         "limits.most_limiters, use fewer names, or unset limits that operators have set for unused names "
         "(turnstile limits)";
}

LimitersHealth DomainMember::health() const {
  const std::lock_guard lock(mutex_);
  const auto phase = member_.phase();
  if (phase == tokens::Member::Phase::halted) return {LimitersHealth::State::halted, member_.why_halted()};
  const bool joined = phase == tokens::Member::Phase::joined;
  if (joined && behind_.empty() && member_.open_until() > now()) return {};
  const std::string why = told_failure_.empty() ? std::string() : " (writing failed: " + told_failure_ + ")";
  return {LimitersHealth::State::cut_off,
          (joined ? "nothing that this process wrote to " + log_->name() + " has come back within its lease"
                  : "this process has not joined the token domain of " + log_->name() + " yet") +
              why};
}

/// Logs a line for each change.
void DomainMember::tell_of_coordination(tokens::Micros now) {
  if (member_.expired() != told_expired_) {
    told_expired_ = member_.expired();
    run_log_.error(Code::permits_lost,
                   "the other members have expired this one, since they had heard nothing of it for its lease of " +
                       std::to_string(settings_.lease.count()) +
                       " ms: the permits that it held are reassigned. Handlers that still run under them were asked to "
                       "stop. Joining again");
  }
  const bool open = member_.phase() == tokens::Member::Phase::joined && member_.open_until() > now;
  if (open == was_open_) return;
  tokens::Count reserved = 0;
  for (const auto& [name, named] : limiters_) reserved += reserve_of(name);
  was_open_ = open;
  if (open) run_log_.info("joined the token domain of " + log_->name() + " as member " + std::to_string(member_.id()));
  else if (member_.phase() == tokens::Member::Phase::joined)
    run_log_.warn(
        Code::token_log_silent,
        "nothing that this member wrote to " + log_->name() +
            " has come back within its lease: no handler under a limit starts until it does" +
            (settings_.reserve == 0 ? "" : ", except on its " + std::to_string(reserved) + " reserved permits"));
  if (settings_.reserve == 0) return;
  std::uint64_t taken = 0;
  for (const auto& known : pools_) taken += known.pool->taken_of_reserve();
  if (open && taken > told_of_reserve_)
    run_log_.warn(Code::token_log_silent,
                  std::to_string(taken - std::exchange(told_of_reserve_, taken)) +
                      " handlers were started on reserved permits while the token log could not be reached");
}

void DomainMember::tell_of_limits() {
  for (auto& [name, named] : limiters_) {
    if (const bool refused = member_.is_refused(name); refused != std::exchange(named.told_refused, refused) && refused)
      run_log_.error(Code::too_many_limiters, too_many_limiters(name, state_.most_limiters()));
    const auto entry = state_.limiters.find(name);
    if (entry == state_.limiters.end() || !entry->second.holdings.contains(member_.id())) continue;
    const auto limit = static_cast<std::int64_t>(entry->second.limit());
    if (limit == std::exchange(named.told_limit, limit)) continue;
    const std::string here = "; configured here: " + std::to_string(named.limit);
    const std::string why = entry->second.set      ? ", set by an operator (turnstile limits)" + here
                            : limit == named.limit ? ", as configured"
                                                   : ", the lowest that a member's configuration says" + here;
    run_log_.info("limiter '" + name +
                  "': " + (limit == 0 ? "paused" : std::to_string(limit) + " at once over the domain") + why);
  }
}

}  // namespace turnstile
