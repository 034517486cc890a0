#include "permits/domain_snapshots.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include "tokens/apply.hpp"
#include "tokens/parts.hpp"
#include "tokens/snapshot.hpp"
#include "tokens/wire.hpp"
#include "turnstile/shell.hpp"

namespace turnstile::detail {

namespace {

/// How many members store snapshots. They are the oldest ones that write; the second covers an outage of the first.
constexpr std::ptrdiff_t kSnapshotWriters = 2;
/// The search ends after this number of snapshots from before the log's beginning. A member that reads late writes old
/// snapshots one after another while it catches up. They come after the snapshot for which the log was trimmed.
constexpr int kOldSnapshots = 64;
/// How long it waits for records that the log has, and how often in a row.
constexpr std::chrono::milliseconds kLookForRecords{100};
constexpr int kMostSilent = 50;

/// How many members that wrote from `since` on joined before this one. 0 if it has not joined. A member that died at rest
/// stays a member for long, and writes nothing.
std::ptrdiff_t older_members(const tokens::State& state, tokens::MemberId id, tokens::Position since) {
  const auto self = state.members.find(id);
  if (self == state.members.end()) return 0;
  return std::count_if(state.members.begin(), state.members.end(), [&](const auto& m) {
    return m.second.joined_at < self->second.joined_at && m.second.last >= since;
  });
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
    if (!state || state->part != first.part) {
      run_log_.warn(Code::token_log_unreadable,
                    "a snapshot of the token log, " + log_.name() +
                        (state ? ", belongs to another part of it (" : ", cannot be read (") +
                        std::to_string(kept->bytes.size()) + " bytes); trying the one before it");
      continue;
    }
    if (tokens::is_same_part(*state, first)) {
      if (state->last + 1 < begin) {
        ++too_old;
        continue;
      }
      if (state->last < log_.end()) {
        if (earlier) report_recreated(*earlier);
        return std::move(*state);
      }
    }
    if (!earlier) earlier = std::move(*state);
  }
  if (first.part == 0 && begin == 0) look_at_other_parts(earlier, first);
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

/// Absent: the log could not be read up to its end.
std::optional<tokens::State> DomainSnapshots::at_end(tokens::State state) {
  const std::int64_t end = log_.end();
  if (state.last + 1 < end) log_.seek(state.last + 1);
  try {
    for (int silent = 0; state.last + 1 < end && silent < kMostSilent; ++silent) {
      for (const auto& record : log_.read(kLookForRecords)) {
        if (record.position != state.last + 1) continue;
        tokens::apply(state, record.position, tokens::decode(record.bytes));
        silent = 0;
      }
    }
  } catch (const TokenLogTrimmed&) {  // others have stored a snapshot meanwhile
    return std::nullopt;
  }
  return state.last + 1 < end ? std::nullopt : std::optional(std::move(state));
}

/// Part 0 has no snapshot of this log. A topic that was created again begins undivided, and the snapshots of the earlier
/// one lie in all its parts. What they have is added to `earlier`. If this log is divided, each part reports its own, so
/// `earlier` keeps only the limiters whose home has no snapshot.
void DomainSnapshots::look_at_other_parts(std::optional<tokens::State>& earlier, const tokens::State& first) {
  const std::uint32_t parts = log_.snapshot_parts();
  if (parts <= 1) return;
  const auto now = at_end(first);
  const bool is_undivided = now && now->parts == 1;
  if (!is_undivided && !earlier) return;
  bool is_first = !earlier || earlier->parts == 1;
  for (std::uint32_t part = 1; part < parts; ++part) {
    const auto kept = log_.snapshot_of(part);
    auto state = kept ? tokens::restore(kept->bytes) : std::nullopt;
    if (!state || state->part != part) continue;
    if (!earlier) earlier.emplace();
    if (is_undivided && std::exchange(is_first, false)) {
      earlier->parts = state->parts;
      earlier->division = state->division;
    }
    // It may be of a topic before the earlier one.
    if (is_undivided && earlier->division != state->division) continue;
    std::erase_if(earlier->limiters,
                  [&](const auto& limiter) { return tokens::part_of(limiter.first, state->parts) == part; });
    if (is_undivided) earlier->limiters.merge(state->limiters);
  }
  if (is_undivided || !earlier) return;
  earlier->parts = 1;
  if (commands_of_operators(*earlier).empty()) earlier.reset();
}

void DomainSnapshots::report_recreated(const tokens::State& earlier) const {
  const bool was_divided = tokens::is_directory(earlier);
  const std::string parts = std::to_string(earlier.parts), commands = commands_of_operators(earlier);
  std::string text = log_.name() +
                     " was deleted and created again: its newest snapshot belongs to an earlier topic of "
                     "this name" +
                     (was_divided ? ", which was divided into " + parts + " parts" : std::string()) +
                     ", and is ignored";
  if (was_divided) text += ". To divide this log again: turnstile limits divide " + parts;
  if (!commands.empty())
    text += ". The limits that operators had set in it are not in effect; to set them again: " + commands;
  run_log_.warn(Code::token_log_recreated, text);
}

void DomainSnapshots::keep(const tokens::State& state, const tokens::Member& member) {
  if (!state.members.contains(member.id())) return;
  if (state.last >= every_ && state.last / every_ > std::max<std::int64_t>(saved_, 0) / every_) {
    if (older_members(state, member.id(), state.last - every_) < kSnapshotWriters)
      log_.save(state.last, tokens::save(state));
    saved_ = state.last;
  }
  // Below both: a state that two members agree on, and a stored snapshot.
  const std::int64_t below = std::min(member.agreed(), log_.saved());
  if (below <= trimmed_) return;
  trimmed_ = below;
  log_.trim(below + 1);
}

}  // namespace turnstile::detail
