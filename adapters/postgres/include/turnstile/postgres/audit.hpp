#pragma once
// One snapshot of what the tables say of a topic's records, for `turnstile audit`.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "turnstile/config.hpp"
#include "turnstile/postgres/admin.hpp"
#include "turnstile/types.hpp"

namespace turnstile::postgres {

/// A partition of the topic, as a consumer group has claimed it.
struct AuditedPartition {
  std::int32_t partition = 0;           ///< within the topic
  std::int32_t slot = 0;                ///< stands for group, topic and partition in the other tables
  std::int32_t incarnation = 0;         ///< how often the topic was found recreated
  std::optional<Offset> watermark{};    ///< up to it, without it, all records are settled; absent: none was stored
  std::optional<Offset> next_offset{};  ///< the same in modes by_offset and numbered, by the handler's own progress
};

/// A row of the inbox.
struct AuditedEffect {
  MessageId id;           ///< of the message that took effect
  std::int32_t slot = 0;  ///< of the record that took effect; 0: a call, without a record
  Offset offset = 0;      ///< of that record
};

/// A row of `claim`.
struct AuditedClaim {
  MessageId id;       ///< of the message
  std::string state;  ///< "claimed", "unknown" (its lease has ended), "failed" or "parked"
};

/// A row of `dead`.
struct AuditedDead {
  std::int64_t number = 0;                  ///< its number for operators
  Offset offset = 0;                        ///< of the record
  std::string reason;                       ///< see DeadReason
  bool parked = false;                      ///< it is only in the table, and not in a dead letter topic
  std::optional<DatabaseTime> replayed_at;  ///< absent: not replayed, or in doubt
  bool delivered_again = false;             ///< its record was delivered again since it died, and took effect
};

/// A message that was stored for a retry: `retry(...).durable()`.
struct AuditedRetry {
  MessageId id;                      ///< of the message
  std::optional<std::int64_t> dead;  ///< it became this dead letter; absent: its retry is stored
  bool waits = false;                ///< this dead letter was not replayed since
  std::string place{};               ///< of this dead letter: `TOPIC[PARTITION]@OFFSET`
};

/// Effects at these times, by the server's clock. Absent: no bound.
struct AuditedTimes {
  std::optional<Timestamp> from{};  ///< the first time
  std::optional<Timestamp> to{};    ///< 1 past the last time
};

/// Effects that AuditSnapshot::each_effect() leaves out.
struct AuditedElsewhere {
  /// Effects in partitions that another group has claimed, or of another topic.
  struct Others {
    std::string topic;         ///< of the partitions
    std::string group;         ///< that has claimed them
    std::int64_t effects = 0;  ///< in all of these partitions
  };
  /// An effect that no record can have made.
  struct Stray {
    MessageId id;           ///< of the message that took effect
    std::int32_t slot = 0;  ///< of the ranges, or one that no partition ever had
    Offset offset = 0;      ///< negative, if the slot is one of the ranges
  };

  std::int64_t before = 0;           ///< in a slot of the ranges, before its range
  std::int64_t by_call = 0;          ///< of calls, without a record
  std::int64_t unknown = 0;          ///< in slots whose row of `fence` was deleted, or may have been
  std::vector<Others> others{};      ///< by topic and group
  std::int64_t strays = 0;           ///< all of them
  std::vector<Stray> some_strays{};  ///< the first of them, by slot and offset
};

/// What the handlers of all topics have published and the relay has not sent.
struct AuditedOutbox {
  std::int64_t waiting = 0;  ///< records to be sent
  std::int64_t refused = 0;  ///< records that the broker refuses
};

/// A limiter that PostgreSQL counts.
struct AuditedLimiter {
  std::string name;        ///< its name
  std::int64_t limit = 0;  ///< in effect now
  std::int64_t held = 0;   ///< permits whose lease has not ended
  /// Whether one of them was granted after the limit was last changed. Those from before are kept when it is lowered.
  bool granted_since = false;

  /// Whether permits above the limit were granted.
  [[nodiscard]] bool is_exceeded() const noexcept { return held > limit && granted_since; }
};
/// All of them, as they are now, in the order of their names. May throw what Admin's calls throw.
std::vector<AuditedLimiter> audited_limiters(const PostgresSettings& settings);

/// A REPEATABLE READ transaction: all answers are of the moment when it was opened. It is read-only. Its role must be
/// able to read all tables of the schema, as the owner or a role with pg_read_all_data. While it is open, PostgreSQL cannot clean up rows that are deleted meanwhile.
/// One thread at a time may use it. All calls may throw what Admin's calls throw.
class AuditSnapshot {
 public:
  /// Opens it. Throws Error if no handler has the name, or if the group has claimed no partition of the topic; and
  /// SchemaError if the schema is not the one of this build.
  AuditSnapshot(const PostgresSettings& settings, std::string group, std::string topic, std::string handler);
  ~AuditSnapshot();
  AuditSnapshot(const AuditSnapshot&) = delete;
  AuditSnapshot& operator=(const AuditSnapshot&) = delete;

  /// The partitions that the group has claimed, in their order.
  [[nodiscard]] const std::vector<AuditedPartition>& partitions() const noexcept;
  /// Since when all ids of the handler are stored. Absent: none was deleted for its age.
  [[nodiscard]] std::optional<DatabaseTime> all_since() const noexcept;
  /// When it was opened, by the server's clock.
  [[nodiscard]] DatabaseTime taken_at() const noexcept;

  /// The ids that have taken effect. PostgreSQL may read the whole inbox for each call, so ask for many ids at once.
  /// This and the next two calls need each id only once.
  std::vector<AuditedEffect> effects(std::span<const MessageId> ids);
  /// The ids that are claimed.
  std::vector<AuditedClaim> claims(std::span<const MessageId> ids);
  /// The ids whose messages were stored for a retry, and have not taken effect.
  std::vector<AuditedRetry> retries(std::span<const MessageId> ids);
  /// Whether the handler has claims at all.
  bool has_claims();
  /// The dead letters of these records, in the order of their offsets.
  std::vector<AuditedDead> dead(const AuditedPartition& of, Offset begin, Offset end);

  /// Offsets of a slot.
  struct SlotRange {
    std::int32_t slot = 0;  ///< the slot
    Offset begin = 0;       ///< first offset
    Offset end = 0;         ///< 1 past the last offset; the largest offset: no end
  };
  /// Calls `on_row` for each row of the inbox whose record is in one of the ranges. It reads the table from its
  /// beginning to its end, with bounded memory.
  void each_effect(std::span<const SlotRange> ranges,
                   const std::function<void(std::int32_t slot, Offset offset, std::string_view id)>& on_row);
  /// Counts the effects that each_effect() leaves out, except those behind the ranges, and names at most `most` strays. A
  /// slot may have only one range. It reads the table from its beginning to its end, and again if there are strays.
  AuditedElsewhere elsewhere(std::span<const SlotRange> ranges, const AuditedTimes& times, std::size_t most);
  /// What waits in the outbox.
  AuditedOutbox outbox();

 private:
  friend std::vector<AuditedLimiter> audited_limiters(const PostgresSettings& settings);
  static std::vector<AuditedLimiter> limiters_of(const PostgresSettings& settings);

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace turnstile::postgres
