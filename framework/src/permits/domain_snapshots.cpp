#include "permits/domain_snapshots.hpp"

#include <algorithm>

#include "tokens/parts.hpp"
#include "tokens/snapshot.hpp"
#include "turnstile/shell.hpp"

namespace turnstile::detail {

namespace {

/// How many members store snapshots. They are the oldest ones; the second covers an outage of the first.
constexpr std::ptrdiff_t kSnapshotWriters = 2;
/// The search ends after this number of snapshots from before the log's beginning. A member that reads late writes old
/// snapshots one after another while it catches up. They come after the snapshot for which the log was trimmed.
constexpr int kOldSnapshots = 64;

/// How many members joined before this one. 0 if it has not joined.
std::ptrdiff_t older_members(const tokens::State& state, tokens::MemberId id) {
  const auto self = state.members.find(id);
  if (self == state.members.end()) return 0;
  return std::count_if(state.members.begin(), state.members.end(),
                       [&](const auto& m) { return m.second.joined_at < self->second.joined_at; });
}

}  // namespace

std::string commands_of_operators(const tokens::State& state) {
  std::string commands;
  for (const auto& [limiter, entry] : state.limiters) {
    if (!entry.set) continue;
    commands += (commands.empty() ? "turnstile limits set --ahead " : "; turnstile limits set --ahead ") +
                text::shell_operand(limiter, "NAME") + " " + std::to_string(*entry.set);
  }
  return commands;
}

/// It asks for the log's beginning first: a snapshot is stored before the records that it covers are deleted.
tokens::State DomainSnapshots::newest(const tokens::State& first) {
  const std::int64_t begin = log_.begin();
  int found = 0, too_old = 0;
  std::optional<tokens::State> earlier;  // the newest snapshot of an earlier topic of this name
  for (auto kept = log_.snapshot(); kept && too_old < kOldSnapshots; kept = log_.snapshot(kept->number)) {
    ++found;
    auto state = tokens::restore(kept->bytes);
    if (!state || !tokens::is_same_part(*state, first)) {
      run_log_.warn(Code::token_log_unreadable,
                    "a snapshot of the token log, " + log_.name() +
                        (state ? ", belongs to another part or another division of it (" : ", cannot be read (") +
                        std::to_string(kept->bytes.size()) + " bytes); trying the one before it");
      continue;
    }
    if (state->last + 1 < begin) {
      ++too_old;
      continue;
    }
    if (state->last < log_.end()) {
      if (earlier) report_recreated(*earlier);
      return std::move(*state);
    }
    if (!earlier) earlier = std::move(*state);
  }
  if (earlier) report_recreated(*earlier);
  if (begin == 0) return first;
  throw TokenLogBroken(
      log_.name() + " begins at position " + std::to_string(begin) + ", and no snapshot reaches that far (" +
      std::to_string(found) +
      " were found), so this process cannot know which members hold permits. If members of the domain run, wait: they save "
      "a snapshot within " +
      std::to_string(every_) +
      " records of the log. Then start this process again. If no member "
      "runs, delete the topic and its snapshots, then start the members again");
}

void DomainSnapshots::report_recreated(const tokens::State& earlier) const {
  const std::string commands = commands_of_operators(earlier);
  std::string text = log_.name() +
                     " was deleted and created again: its newest snapshot belongs to an earlier topic of "
                     "this name, and is ignored";
  if (!commands.empty())
    text += ". The limits that operators had set in it are not in effect; to set them again: " + commands;
  run_log_.warn(Code::token_log_recreated, text);
}

void DomainSnapshots::keep(const tokens::State& state, const tokens::Member& member) {
  if (!state.members.contains(member.id())) return;
  if (state.last >= every_ && state.last / every_ > std::max<std::int64_t>(saved_, 0) / every_) {
    if (older_members(state, member.id()) < kSnapshotWriters) log_.save(state.last, tokens::save(state));
    saved_ = state.last;
  }
  // Below both: a state that two members agree on, and a stored snapshot.
  const std::int64_t below = std::min(member.agreed(), log_.saved());
  if (below <= trimmed_) return;
  trimmed_ = below;
  log_.trim(below + 1);
}

}  // namespace turnstile::detail
