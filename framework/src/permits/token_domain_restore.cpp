// How a member of a token domain gets its first state: from the newest snapshot, also after records were deleted while
// it could not read.

#include "permits/token_domain.hpp"
#include "tokens/snapshot.hpp"

namespace turnstile {

namespace {

/// The search ends after this number of snapshots from before the log's beginning. A member that reads late writes old
/// snapshots one after another while it catches up. They come after the snapshot for which the log was trimmed.
constexpr int kOldSnapshots = 64;
/// The delay before an unreadable snapshot is read again.
constexpr tokens::Micros kReadAgain = 1'000'000;

/// "turnstile limits set psp 0; turnstile limits set mail 5": the commands for the limits that operators have set.
/// Empty: none.
std::string commands_of_operators(const tokens::State& state) {
  std::string commands;
  for (const auto& [limiter, entry] : state.limiters) {
    if (!entry.set) continue;
    commands += (commands.empty() ? "turnstile limits set " : "; turnstile limits set ") + limiter + " " +
                std::to_string(*entry.set);
  }
  return commands;
}

}  // namespace

std::string DomainMember::settings_at_stake() const {
  const std::lock_guard lock(mutex_);
  const std::string commands = commands_of_operators(state_);
  if (commands.empty()) return {};
  return ". A new topic does not have the limits that operators had set: once the members run again, set them again: " +
         commands;
}

/// The newest readable snapshot from which the log continues. It asks for the log's beginning first: a snapshot is
/// stored before the records that it covers are deleted.
tokens::State DomainMember::newest_state() {
  const std::int64_t begin = log_->begin();
  int found = 0, too_old = 0;
  for (auto kept = log_->snapshot(); kept && too_old < kOldSnapshots; kept = log_->snapshot(kept->number)) {
    ++found;
    auto state = tokens::restore(kept->bytes);
    if (!state) {
      run_log_.warn(Code::token_log_unreadable, "a snapshot of the token log, " + log_->name() + ", cannot be read (" +
                                                    std::to_string(kept->bytes.size()) +
                                                    " bytes); trying the one before it");
      continue;
    }
    if (state->last + 1 < begin) {
      ++too_old;
      continue;
    }
    const std::int64_t end = log_->end();
    if (state->last >= end) {  // a snapshot of an earlier topic of this name
      const std::string commands = commands_of_operators(*state);
      run_log_.warn(
          Code::token_log_recreated,
          "a snapshot of the token log was made at position " + std::to_string(state->last) + ", but " + log_->name() +
              " ends at " + std::to_string(end) + ": the topic was recreated since, and the snapshot is ignored" +
              (commands.empty()
                   ? std::string()
                   : ". The limits that operators had set in it are not in effect; to set them again: " + commands));
      continue;
    }
    return std::move(*state);
  }
  if (begin == 0) return {};
  throw TokenLogBroken(log_->name() + " begins at position " + std::to_string(begin) +
                       ", and there is no snapshot that reaches so far (" + std::to_string(found) +
                       " were found): the holders of permits cannot be known. Stop all members of the domain, delete "
                       "the topic and its snapshots, and start them again");
}

/// Records that it has not read were deleted, because other members agreed on a newer snapshot. It continues from that
/// snapshot as a new member. Permits under its old id return with that id's lease. Its own deadline has passed, or will
/// pass first.
void DomainMember::begin_anew(tokens::Micros at) {
  tokens::State newer;
  try {
    newer = newest_state();
    if (newer.last <= state_.last) throw TokenLogBroken(behind_ + "; and there is no newer snapshot");
    log_->seek(newer.last + 1);
  } catch (const BrokerError& error) {
    const std::lock_guard lock(mutex_);
    begin_anew_at_ = at + kReadAgain;
    if (std::exchange(told_behind_, error.what()) != error.what())
      run_log_.warn(Code::token_log_unreadable,
                    std::string("the newest snapshot of the token log could not be read; retrying: ") + error.what());
    return;
  }
  std::vector<tokens::Order> orders;
  {
    const std::lock_guard lock(mutex_);
    run_log_.error(Code::token_log_trimmed,
                   "this member was cut off from " + log_->name() +
                       " for so long that records which it had not read were trimmed (" + std::exchange(behind_, {}) +
                       "). The permits that it held are lost, and handlers that run under them were asked to stop. "
                       "Joining again from the snapshot of position " +
                       std::to_string(newer.last));
    told_behind_.clear();
    state_ = std::move(newer);
    member_.begin_anew();
    for (const auto& change : changes_) change->sent = false;
    orders = member_.take_orders();
  }
  carry_out(std::move(orders));
}

}  // namespace turnstile
