#pragma once
// How far a group goes back in each partition. Pure.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "turnstile/types.hpp"

namespace turnstile::cli {

/// A partition before a rewind.
struct GroupPosition {
  std::int32_t partition = 0;
  std::optional<Offset> committed;  ///< absent: the group has committed none
  std::optional<Offset> at_time;    ///< the first record of the time or later; absent: there is none
  std::optional<Offset> settled{};  ///< modes by_offset and numbered: all records below it are settled
};

/// What a rewind does in a partition. It never goes forward.
struct Rewind {
  std::int32_t partition = 0;
  std::optional<Offset> committed;
  std::optional<Offset> to;  ///< absent: the offset stays

  /// How many offsets are read again.
  [[nodiscard]] std::int64_t records() const { return to ? *committed - *to : 0; }
};

std::vector<Rewind> plan_rewind(const std::vector<GroupPosition>& positions);

/// Of the offsets that are read again, how many lie below `settled`: they are skipped.
std::int64_t settled_records(const Rewind& rewind, Offset settled);

/// What happens to the records that are read again.
struct RewindCount {
  bool by_progress = false;  ///< modes by_offset and numbered: `duplicates` are those below the progress of the handler
  std::int64_t read = 0;
  std::int64_t duplicates = 0;  ///< they took effect
  std::int64_t stored = 0;      ///< they wait for a later attempt, or were dropped there
  std::int64_t run = 0;         ///< nothing shows that they took effect
  std::int64_t dead = 0;        ///< of `run`: they are dead letters
  std::int64_t over = 0;        ///< they came back for a later attempt, and its row is gone: they are skipped
  std::int64_t in_doubt = 0;    ///< parked, or in doubt
  std::int64_t stay_dead = 0;   ///< dead letters that do not run
  std::int64_t without_id = 0;
  std::int64_t for_another = 0;  ///< replays for another handler: this one passes over them
};

}  // namespace turnstile::cli
