#pragma once
// Messages that transactions have published, on their way to the broker. Implemented by adapters/postgres and adapters/memory; both
// pass the same contract suite.

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "turnstile/message.hpp"

namespace turnstile {

/// Records of one key are in one shard, and a shard has one relay at a time.
using OutboxShard = std::int16_t;
/// How many shards there are.
inline constexpr OutboxShard kOutboxShards = 16;

/// A relay holds about so many bytes of records at a time.
inline constexpr std::size_t kOutboxBytes = 16 << 20;

/// The header that a record's id is sent in.
inline constexpr std::string_view kMessageIdHeader = "message-id";
/// Gives the record the header message-id. One that its writer has given is kept as it is: exactly one, not empty.
void put_id(OwnedMessage& message, const MessageId& id);

/// A published message on its way.
struct OutboxRecord {
  OutboxShard shard = 0;  ///< the part of the outbox that it is in
  std::int64_t id = 0;    ///< grows in the order in which transactions wrote
  OwnedMessage message;   ///< with its header message-id; `partition` is -1
  std::string
      unreadable{};  ///< not empty: why its row is no message that could be sent (others may write rows); to be refused
};

/// What waits, over all shards.
struct OutboxLag {
  std::int64_t waiting = 0;            ///< records that are to be sent
  std::chrono::milliseconds oldest{};  ///< how long the oldest of them has waited; 0 when none does
  std::int64_t refused = 0;            ///< put aside: `turnstile outbox list`
};

/// Thread-safe. Every call may throw StoreUnavailable, or StoreBusy (try again).
class Outbox {
 public:
  virtual ~Outbox() = default;

  /// Gives `owner` the shards that nobody has, and prolongs those that it has: all of them are its own for `lease` from now, by the
  /// store's clock. Returns what it has.
  virtual std::vector<OutboxShard> keep_shards(const std::string& owner, std::chrono::milliseconds lease) = 0;
  /// Gives them back at once.
  virtual void leave_shards(const std::string& owner) = 0;
  /// What waits in these shards, at most `most`, each shard's in its order. Each shard has an equal part of `bytes` (of keys, payloads and
  /// headers), and gives no more once that is reached: the sum goes past `bytes` by one record of each shard at most.
  virtual std::vector<OutboxRecord> waiting(std::span<const OutboxShard> shards, std::size_t most,
                                            std::size_t bytes = kOutboxBytes) = 0;
  /// They were sent. Those that are gone already are passed over in silence.
  virtual void remove(std::span<const OutboxRecord* const> records) = 0;
  /// The broker will never take it: it is put aside, and those behind it go on.
  virtual void refuse(const OutboxRecord& record, const std::string& why) = 0;
  /// What waits, over all shards.
  virtual OutboxLag lag() = 0;
};

}  // namespace turnstile
