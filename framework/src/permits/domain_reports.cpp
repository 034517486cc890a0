#include "permits/domain_reports.hpp"

#include <utility>

namespace turnstile::detail {

void DomainReports::write_failed(const std::string& why) {
  if (std::exchange(write_failure_, why) == why) return;
  run_log_.warn(Code::token_log_write_failed,
                "Write to " + log_.name() + " failed: " + why + ". Retrying with a new producer epoch");
}

void DomainReports::snapshot_unreadable(const std::string& why) {
  if (std::exchange(snapshot_failure_, why) == why) return;
  run_log_.warn(Code::token_log_unreadable, "the newest snapshot of the token log could not be read; retrying: " + why);
}

void DomainReports::begins_anew(tokens::Position from, const std::string& why) {
  snapshot_failure_.clear();
  run_log_.error(Code::token_log_trimmed,
                 "this member was cut off from " + log_.name() +
                     " for so long that records which it had not read were trimmed (" + why +
                     "). The permits that it held are lost, and handlers that run under them were asked to stop. "
                     "Joining again from the snapshot of position " +
                     std::to_string(from));
}

void DomainReports::expired(std::uint64_t count) {
  if (std::exchange(expired_, count) == count) return;
  run_log_.error(Code::permits_lost,
                 "the other members have expired this one, since they had heard nothing of it for its lease of " +
                     std::to_string(lease_.count()) +
                     " ms: the permits that it held are reassigned. Handlers that still run under them were asked to "
                     "stop. Joining again");
}

void DomainReports::opened_or_closed(bool open, const tokens::Member& member, tokens::Count reserved,
                                     std::uint64_t taken) {
  was_open_ = open;
  if (open) run_log_.info("joined the token domain of " + log_.name() + " as member " + std::to_string(member.id()));
  else if (member.phase() == tokens::Member::Phase::joined)
    run_log_.warn(Code::token_log_silent,
                  "nothing that this member wrote to " + log_.name() +
                      " has come back within its lease: no handler under a limit starts until it does" +
                      (!has_reserve_ ? "" : ", except on its " + std::to_string(reserved) + " reserved permits"));
  if (!has_reserve_) return;
  if (open && taken > taken_of_reserve_)
    run_log_.warn(Code::token_log_silent,
                  std::to_string(taken - std::exchange(taken_of_reserve_, taken)) +
                      " handlers were started on reserved permits while the token log could not be reached");
}

void DomainReports::limiter(const std::string& name, std::int64_t configured, ReportedLimiter& reported,
                            const tokens::State& state, const tokens::Member& member) const {
  if (const bool refused = member.is_refused(name); refused != std::exchange(reported.refused, refused) && refused)
    run_log_.error(Code::too_many_limiters, too_many_limiters(name, state.most_limiters()));
  const auto entry = state.limiters.find(name);
  if (entry == state.limiters.end() || !entry->second.holdings.contains(member.id())) return;
  const auto limit = static_cast<std::int64_t>(entry->second.limit());
  if (limit == std::exchange(reported.limit, limit)) return;
  const std::string here = "; configured here: " + std::to_string(configured);
  const std::string why = entry->second.set     ? ", set by an operator (turnstile limits)" + here
                          : limit == configured ? ", as configured"
                                                : ", the lowest that a member's configuration says" + here;
  run_log_.info("limiter '" + name +
                "': " + (limit == 0 ? "paused" : std::to_string(limit) + " at once over the domain") + why);
}

std::string DomainReports::too_many_limiters(const std::string& name, std::size_t most) const {
  return "limiter '" + name + "': the token domain of " + log_.name() + " has " + std::to_string(most) +
         " limiters, which is the maximum (limits.most_limiters), so this limiter would never give a permit. Raise "
         "limits.most_limiters, use fewer names, or unset limits that operators have set for unused names "
         "(turnstile limits)";
}

}  // namespace turnstile::detail
