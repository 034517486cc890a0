#pragma once
// Messages that transactions have published, on their way to the broker. adapters/postgres and adapters/memory
// implement it; both pass the same contract suite.

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "turnstile/message.hpp"

namespace turnstile::ports {

/// A part of the outbox. Records of one key are in one shard, and a shard has one relay at a time.
using OutboxShard = std::int16_t;
/// The number of shards.
inline constexpr OutboxShard kOutboxShards = 16;

/// About how many bytes of records a relay holds at a time.
inline constexpr std::size_t kOutboxBytes = 16 << 20;

/// The header in which a record's id is sent.
inline constexpr std::string_view kMessageIdHeader = "message-id";
/// Gives the record the header message-id. A header that its writer has set is kept, if it is exactly one and not
/// empty.
void put_id(OwnedMessage& message, const MessageId& id);

/// A published message on its way.
struct OutboxRecord {
  OutboxShard shard = 0;  ///< the part of the outbox that it is in
  std::int64_t id = 0;    ///< grows in the order in which transactions wrote it
  OwnedMessage message;   ///< with its header message-id; `partition` is -1
  /// If not empty, the row is no message that could be sent, and this is why. Other programs may write rows. The relay
  /// refuses such a record.
  std::string unreadable{};
  /// For a stored message that is sent for its next attempt: when it was due, in microseconds since 1970. `id` is then
  /// its number. For all others: absent.
  std::optional<std::int64_t> due_us{};
};

/// The waiting messages of all shards.
struct OutboxLag {
  std::int64_t waiting = 0;            ///< records to be sent
  std::chrono::milliseconds oldest{};  ///< how long the oldest of them has waited; 0 if there are none
  std::int64_t refused = 0;            ///< refused by the broker: `turnstile outbox list`
  std::int64_t scheduled = 0;          ///< not due yet: `turnstile outbox scheduled`
  /// Messages that are stored for their next attempt: `turnstile retries list`. Counted up to kMostRetriesCounted.
  std::int64_t retries = 0;
};
/// With more stored retries than this, the store stops counting, so that the count stays cheap.
inline constexpr std::int64_t kMostRetriesCounted = 100'000;

/// What release_due() did.
struct OutboxDue {
  std::size_t moved = 0;  ///< messages that wait in the outbox now
  /// Until the first scheduled message of any shard is due; 0: one is due now. Absent: there is none.
  std::optional<std::chrono::milliseconds> next{};
};

/// The latest time for which a message can be scheduled: the end of the year 9999.
inline constexpr Timestamp kLatestDue{std::chrono::milliseconds{253'402'300'799'999}};
/// Whether a published message must be scheduled. `now` is a clock of the caller. Throws Error for a time after
/// kLatestDue.
bool is_scheduled(const OwnedMessage& message, Timestamp now);

/// The outbox. Thread-safe. Every call may throw StoreUnavailable, and StoreBusy (repeat it).
class Outbox {
 public:
  virtual ~Outbox() = default;

  /// Gives `owner` the shards without an owner, and renews those that it has. They are its own for `lease` from now, by
  /// the store's clock. Returns all shards of `owner`.
  virtual std::vector<OutboxShard> keep_shards(const std::string& owner, std::chrono::milliseconds lease) = 0;
  /// Returns the owner's shards at once.
  virtual void leave_shards(const std::string& owner) = 0;
  /// Up to `most` waiting messages of these shards, each shard's in its order. Each shard gets an equal part of `bytes`
  /// (keys, payloads and headers), and stops once it has reached that. Stored messages that are due may get one more
  /// such part. The sum exceeds this by at most one record of each shard.
  virtual std::vector<OutboxRecord> waiting(std::span<const OutboxShard> shards, std::size_t most,
                                            std::size_t bytes = kOutboxBytes) = 0;
  /// Moves up to `most` scheduled messages of these shards that are due to the messages that wait, behind them, in the
  /// order of their times. Stored messages that are due are counted with them. Without shards it only looks. Only the
  /// owner of the shards calls it: two that moved messages of one key at once could change their order.
  virtual OutboxDue release_due(std::span<const OutboxShard> shards, std::size_t most) = 0;
  /// Removes records that were sent. Records that were removed already are ignored. A stored retry that a transaction has
  /// locked may stay: waiting() returns it again until it is removed, or until its message is settled.
  virtual void remove(std::span<const OutboxRecord* const> records) = 0;
  /// Marks a record that the broker will never accept. The records behind it continue. Returns its number for operators;
  /// absent: it is gone already.
  virtual std::optional<std::int64_t> refuse(const OutboxRecord& record, const std::string& why) = 0;
  /// The waiting messages of all shards.
  virtual OutboxLag lag() = 0;
};

}  // namespace turnstile::ports
