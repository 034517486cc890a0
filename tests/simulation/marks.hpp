#pragma once
// Rare places that a run came by. A simulator that never reaches them proves nothing about them.

#include <array>
#include <cstdint>
#include <string_view>

namespace turnstile::simulation {

enum class Mark : std::uint8_t {
  duplicate,
  old_epoch,
  stranger,
  revived,
  stale,
  not_allowed,
  unknown,
  new_epoch,
  expired,
  left,
  drained,
  fenced,
  unfenced,
  strict_kept,
  said_drained,
  claim_void,
  starved,
  turn_over,
  over_lowered_limit,
  limit_raced,
  version_switched,
  version_refused,
  woke_past_deadline,
  handler_past_deadline,
  handler_fenced,
  commit_refused,
  restored,
  checkpoint_agreed,
  new_life,
  halted,
};
inline constexpr std::array<std::string_view, 30> kMarkNames{
    "a duplicate was ignored",
    "an event of an old epoch was ignored",
    "a stranger was ignored",
    "a late Joined revived nobody",
    "an event came too late to hold",
    "an event was out of order or range",
    "bytes were no event",
    "a member went on in a new epoch",
    "a member was expired",
    "a member left",
    "a member began to drain",
    "permits came back by a fence",
    "a member drained without a fence",
    "a strict limiter waited despite a fence",
    "a drained member said so",
    "a claim was void",
    "turns were taken",
    "a turn was over",
    "a limit was lowered below what was held",
    "one of two limit changes was void",
    "the version was switched",
    "a switch of version was refused",
    "a process woke past its deadline",
    "a handler ran past its process's deadline",
    "a handler ran although it was fenced",
    "a commit was refused",
    "a process started from a snapshot",
    "two members agreed on a state",
    "a process began a new life",
    "a member halted",
};

using Marks = std::array<std::uint64_t, kMarkNames.size()>;

}  // namespace turnstile::simulation
