#pragma once
// The rows of the table `dead`: what its columns mean, and which of them a statement selects.

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "admin/session.hpp"

namespace turnstile::postgres {

// replayed_at is NULL while the dead letter waits. While a replay is in doubt, it is the time when that replay began,
// plus 200,000 years. That time is the replay's token. 'infinity' is a replay in doubt that an earlier build began
// without a token. Builds that do not know such a time treat it as replayed, and do not touch it.
// 200,000 years are 500 times the calendar's period of 400 years, so the sum is exact in UTC.
inline constexpr std::string_view kAsBegun = "interval '200000 years'";
inline constexpr std::string_view kInDoubt = "(d.replayed_at >= timestamptz '200000-01-01 00:00:00+00')";
/// The condition of the index dead_waiting. PostgreSQL uses that index only for a statement with this very condition.
inline constexpr std::string_view kWaiting =
    "(d.replayed_at IS NULL OR d.replayed_at >= timestamptz '200000-01-01 00:00:00+00')";

inline constexpr std::string_view kReplayed = "(d.replayed_at < timestamptz '200000-01-01 00:00:00+00')";
inline constexpr std::string_view kNotInDoubt =
    "(d.replayed_at IS NULL OR d.replayed_at < timestamptz '200000-01-01 00:00:00+00')";

/// Whether 64 bits can store the record's time in microseconds; they cannot store infinity.
inline constexpr std::string_view kTimeIsKnown =
    "(extract(epoch FROM d.record_timestamp) BETWEEN -210866803200 AND 9223372036854)";
inline constexpr std::string_view kLacksName =
    "EXISTS (SELECT FROM unnest(d.header_names) AS n (name) WHERE n.name IS NULL)";
/// A condition on rows with a DeadRecord::damage. A record without a time is as it was consumed.
const std::string& is_damaged();

/// "SELECT …": what summary_at() reads, in kSummaryColumns columns. More columns and kDeadFrom may follow.
const std::string& select_summary();
inline constexpr std::size_t kSummaryColumns = 21;
/// Joins `dead d` with the names of its handler and its partition.
inline constexpr std::string_view kDeadFrom =
    " FROM dead d LEFT JOIN handler h ON h.id = d.handler LEFT JOIN fence f ON f.slot = d.slot ";

/// A condition that the row has not changed since it was seen; as_seen() has its arguments.
inline constexpr std::string_view kAsSeen =
    " WHERE d.id = $1::bigint AND d.replayed_at IS NOT DISTINCT FROM $2::timestamptz AND d.edits = $3::integer ";
Arguments as_seen(const DeadSummary& seen);

DeadSummary summary_at(const Rows& rows, std::size_t row);
/// Where the dead letter topic has it.
std::optional<TopicPartitionOffset> dead_letter_at(const Rows& rows, std::size_t row);
/// The token of the replay in doubt that began at this time.
void set_begun(DeadSummary& dead, std::optional<DatabaseTime> began_at);

}  // namespace turnstile::postgres
