// How a member of a token domain gets its first state: from the newest snapshot, also after records were deleted while
// it could not read.

#include "permits/token_domain.hpp"
#include "tokens/parts.hpp"

namespace turnstile::detail {

namespace {

/// The delay before an unreadable snapshot is read again.
constexpr tokens::Micros kReadAgain = 1'000'000;

std::string is_of_another_division(const std::string& log) {
  return log +
         ": the newest snapshot is of another division than this process has read: the topic was deleted, created and "
         "divided again meanwhile. No handler under a limit starts in this process. Restart it";
}

}  // namespace

std::string DomainMember::settings_at_stake() const {
  const std::lock_guard lock(mutex_);
  if (tokens::is_directory(state_)) return {};  // the homes of the limiters have what operators set later
  const std::string commands = commands_of_operators(state_);
  if (commands.empty()) return {};
  return ". A new topic does not have the limits that operators had set. Create the topic, and set them again before the "
         "members start: " +
         commands;
}

/// Records that it has not read were deleted, because other members agreed on a newer snapshot. It continues from that
/// snapshot as a new member. Permits under its old id return with that id's lease. Its own deadline has passed, or will
/// pass first.
void DomainMember::begin_anew(tokens::Micros at) {
  tokens::State newer;
  try {
    tokens::State first;
    first.part = state_.part;
    first.division = state_.division;
    newer = snapshots_.newest(first);
    if (newer.last < state_.last)
      throw TokenLogBroken(
          behind_ + ", and there is no newer snapshot. No handler under a limit starts in this process. Restart it");
    // In part 0 this is the only sign of another log. The members of the other parts are of the division before.
    if (!tokens::can_become(state_, newer)) throw TokenLogBroken(is_of_another_division(log_->name()));
    log_->seek(newer.last + 1);
  } catch (const BrokerError& error) {
    const std::lock_guard lock(mutex_);
    begin_anew_at_ = at + kReadAgain;
    reports_.snapshot_unreadable(error.what());
    return;
  }
  std::vector<tokens::Order> orders;
  {
    const std::lock_guard lock(mutex_);
    same_log_ = {};
    last_step_ = now();     // to read a snapshot takes a while, and that is no suspension
    if (newer == state_) {  // it has missed nothing
      behind_.clear();
      member_.distrust(last_step_);
      return;
    }
    reports_.begins_anew(newer.last, std::exchange(behind_, {}));
    state_ = std::move(newer);
    member_.begin_anew();
    changes_.repeat();
    orders = member_.take_orders();
  }
  carry_out(std::move(orders));
}

}  // namespace turnstile::detail
