#pragma once
// Compares the records of a topic with the tables: each record with the rows about it, and each effect with its record.

#include <array>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "audit/fate.hpp"
#include "turnstile/config.hpp"
#include "turnstile/kafka/record_reader.hpp"

namespace turnstile::cli::audit {

/// The records of a partition by their fates.
struct PartitionCounts {
  kafka::OffsetRange range{};
  std::int64_t records = 0;
  std::array<std::int64_t, kFates> fates{};
  /// Offsets before the log's beginning that the group had not settled. Kafka has deleted their records.
  std::int64_t deleted_unsettled = 0;

  std::int64_t& of(Fate fate) { return fates.at(static_cast<std::size_t>(fate)); }
  [[nodiscard]] std::int64_t of(Fate fate) const { return fates.at(static_cast<std::size_t>(fate)); }
};

/// A record that breaks a guarantee, or an effect without a record.
struct Violation {
  TopicPartitionOffset at{};
  Timestamp time{};  ///< of the record; the epoch: unknown
  Fate fate = Fate::unaccounted;
  std::string why{};
  std::optional<std::int32_t> slot{};  ///< of an effect in no partition: `at` has only its offset
};

struct RecordAudit {
  std::string topic{}, group{}, handler{};
  Mode mode = Mode::transactional;
  postgres::DatabaseTime taken_at{};
  std::optional<postgres::DatabaseTime> all_since{};
  std::vector<PartitionCounts> partitions{};
  std::vector<Violation> violations{};      ///< at most kMostViolations
  std::int64_t unaccounted = 0;             ///< records, all of them
  std::int64_t effects_without_record = 0;  ///< all of them
  std::int64_t effects_of_deleted = 0;      ///< effects whose records the broker has deleted: it cannot be told
  /// Effects whose records are behind an open transaction, so that they cannot be read: it cannot be told.
  std::int64_t effects_of_unread = 0;
  postgres::AuditedElsewhere elsewhere{};  ///< effects that belong to no record of this topic
  postgres::AuditedOutbox outbox{};

  [[nodiscard]] std::int64_t sum(Fate fate) const;
  [[nodiscard]] std::int64_t records() const;
  [[nodiscard]] std::int64_t deleted_unsettled() const;
  /// Whether all effects were compared with records.
  [[nodiscard]] bool compared_all_effects() const {
    return effects_of_deleted + effects_of_unread + elsewhere.by_call + elsewhere.unknown == 0 &&
           elsewhere.others.empty();
  }
};
inline constexpr std::size_t kMostViolations = 1'000;

struct RecordAuditOptions {
  std::string topic{};
  std::optional<std::string> group{};     ///< absent: the configuration's
  std::optional<Timestamp> from{}, to{};  ///< by the records' timestamps
};

/// `on_progress` is called now and then with the number of records so far. Throws UsageError for a topic without
/// deduplication, BrokerError, and what postgres::AuditSnapshot throws.
RecordAudit audit_records(const Config& config, const RecordAuditOptions& options,
                          const std::function<void(std::int64_t records)>& on_progress);

}  // namespace turnstile::cli::audit
