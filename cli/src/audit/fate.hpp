#pragma once
// What became of a record, by what the tables say of it. Pure.

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "turnstile/postgres/audit.hpp"
#include "turnstile/record_ids.hpp"

namespace turnstile::cli::audit {

enum class Fate : std::uint8_t {
  took_effect,
  duplicate,    ///< another record with its id took effect
  dead_letter,  ///< in the dead letter topic, and in the table
  parked,       ///< only in the table, or in doubt: an operator decides
  for_another,  ///< a replayed dead letter of another handler
  pending,      ///< not settled yet
  cannot_tell,  ///< older than what the database remembers; or settled, but not by the progress of a mode without ids
  two_fates,    ///< a violation: it took effect, and became a dead letter that was not replayed
  unaccounted,  ///< a violation: the partition is settled past it, and nothing is known of it
};
inline constexpr std::size_t kFates = 9;
/// "took effect", "duplicate", …
std::string_view to_text(Fate fate);
/// Whether a guarantee was broken.
bool is_violation(Fate fate);

/// A record, and the rows about it. Null: there is no such row.
struct Facts {
  Offset offset = 0;
  Timestamp time{};  ///< the epoch of the clock: the record has none
  const RecordIds::Found* id = nullptr;
  const postgres::AuditedEffect* effect = nullptr;
  const postgres::AuditedClaim* claim = nullptr;
  const postgres::AuditedDead* dead = nullptr;
  const postgres::AuditedRetry* retry = nullptr;  ///< asked only for records of which nothing else is known
};

/// What is the same for all records of a partition.
struct Place {
  Mode mode = Mode::transactional;
  /// Absent: the group has not claimed the partition.
  std::optional<postgres::AuditedPartition> partition{};
  std::optional<postgres::DatabaseTime> all_since{};
};

struct Judgement {
  Fate fate = Fate::unaccounted;
  std::string why{};  ///< of a violation, for people
};
Judgement judge(const Facts& facts, const Place& place);

/// Whether the row of the inbox is about this record.
bool is_of(const postgres::AuditedEffect& effect, const Facts& facts, const Place& place);

}  // namespace turnstile::cli::audit
