#pragma once
// The store of ids. adapters/postgres and adapters/memory implement it; both pass the same contract suite.

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "turnstile/dead_reason.hpp"
#include "turnstile/message.hpp"
#include "turnstile/ports/claims.hpp"
#include "turnstile/ports/outbox.hpp"
#include "turnstile/ports/producers.hpp"
#include "turnstile/ports/trials.hpp"
#include "turnstile/transaction.hpp"
#include "turnstile/types.hpp"

namespace turnstile {

/// A message to admit.
struct InboxEntry {
  MessageId id;                               ///< identifies the message
  Offset offset = 0;                          ///< of the record
  std::optional<std::int64_t> fingerprint{};  ///< hash of the payload, if the topic stores one
  std::optional<Request> request{};           ///< if producers number what they send
  /// For claims: the message may have taken effect, and the store may have lost that. If the store does not know the
  /// message, it is parked, or claimed under ClaimScope::rerun_unknown.
  bool in_doubt = false;

  /// Whether the id was stored with a fingerprint of another payload.
  [[nodiscard]] bool differs_from(const std::optional<std::int64_t>& kept) const noexcept {
    return kept && fingerprint && *kept != *fingerprint;
  }
};

/// Whether a message of a batch may run.
enum class Admission : std::uint8_t {
  fresh,       ///< its id is now in the inbox, as part of the open transaction
  duplicate,   ///< its id was stored already, or an earlier entry of the same batch has it
  mismatch,    ///< a duplicate, but the stored fingerprint differs
  outside,     ///< its request number is outside the window, so it may have taken effect
  no_session,  ///< its producer is unknown, or had expired when the message was sent
};

/// The common part of all messages of a transaction.
struct InboxScope {
  HandlerId handler;             ///< the scope of the ids
  std::optional<Fence> fence{};  ///< absent: no partition belongs to the transaction
  /// The longest wait for a concurrent transaction (hazard: blocked-insert).
  std::chrono::milliseconds lock_timeout{5'000};
  /// The server ends the transaction after this time without a statement.
  std::chrono::milliseconds idle_timeout{30'000};
  /// How messages are distinguished. In mode by_offset by their offsets, which ascend in the batch: an offset below the
  /// partition's progress is a duplicate, and there is one row for all. In mode numbered also by their producers'
  /// numbers: a repeated number is a duplicate, and there is one more row for each producer. In the other modes by their
  /// ids, with a row for each.
  Mode mode = Mode::transactional;
  std::int32_t incarnation = 0;  ///< by_offset, numbered: of the topic; a new incarnation starts anew
  /// Mode numbered: how many numbers the window distinguishes; a multiple of 8.
  std::int64_t window = 1'024;
};

/// The stored data of an id that has taken effect.
struct Recorded {
  std::optional<std::int64_t> fingerprint;  ///< a hash of the payload, if one was stored
  std::optional<std::string> response;      ///< the response, if the handler replied
};

/// The state of the transaction that begin() opened last.
enum class Standing : std::uint8_t {
  sound,        ///< as far as known, it can be committed
  failed,       ///< the store refused a statement, or the transaction is no longer open
  busy,         ///< it failed because of a concurrent transaction; it may be repeated as a whole
  lost,         ///< a statement in it found that the connection is lost
  lost_unseen,  ///< the connection was lost, and no statement in it has found that yet
};

/// Runs one transaction at a time, on one thread at a time. If a session with an open transaction is destroyed, it
/// rolls back.
class InboxSession {
 public:
  virtual ~InboxSession() = default;

  /// Opens a transaction, checks the fence, and admits the ids. The result has the order of `entries`. If ids of a
  /// batch are equal, the first is fresh and the others are duplicates. In modes by_offset and numbered, the
  /// transaction also records that all messages up to the last of the batch are done.
  /// Throws Fenced (the epoch is over, or the store has another history than the fence), StoreBusy (repeat the whole),
  /// and StoreUnavailable. After an exception no transaction is open.
  virtual std::vector<Admission> begin(const InboxScope& scope, std::span<const InboxEntry> entries) = 0;
  /// The open transaction, as handlers see it.
  virtual Transaction& transaction() = 0;
  /// Statements that are deferred from here on belong to this message of the batch.
  virtual void at_message(std::size_t index) = 0;
  /// Stores the response to a message that begin() found fresh, one for each id. Queued like a deferred statement.
  virtual void respond(const MessageId& id, std::string_view body) = 0;
  /// Puts a message into the outbox. It is sent after the transaction has committed, to the partition of its key, with
  /// `id` as its header message-id; see put_id(). Queued like a deferred statement.
  virtual void publish(const OwnedMessage& message, const MessageId& id) = 0;
  /// Sends the deferred statements, and commits. Throws DeferredSqlError, SqlError (a constraint checked at commit),
  /// StoreBusy, StoreUnavailable (nothing was committed), and CommitInDoubt. After an exception no transaction is open.
  virtual void commit() = 0;
  /// Never throws. Safe without an open transaction, and on a lost connection.
  virtual void rollback() noexcept = 0;
  /// The state of the transaction. It distinguishes an error of this session from an error of the same type that a
  /// handler got from another store: the latter leaves this session sound.
  [[nodiscard]] virtual Standing standing() noexcept = 0;

  /// Which ids are in the inbox, committed, in the order of `ids`. None if the store has another history than the
  /// fence. Opens no transaction. Throws StoreUnavailable.
  virtual std::vector<bool> settled(HandlerId handler, const std::optional<Fence>& fence,
                                    std::span<const MessageId> ids) = 0;
  /// The stored responses, in the order of `ids`: committed ones and, in an open transaction, its own. Throws
  /// StoreUnavailable. In an open transaction it also throws what commit() throws, and the transaction must then be
  /// rolled back.
  virtual std::vector<std::optional<std::string>> responses(HandlerId handler, std::span<const MessageId> ids) = 0;
};

/// What the store knows of a partition that was just assigned.
struct PartitionClaim {
  TopicPartition at;                ///< the partition
  Fence fence;                      ///< with the new epoch, and the history of the store
  std::optional<Offset> watermark;  ///< every message below it is settled in this database
  /// The highest offset up to which a handler has done its numbered records (modes by_offset and numbered). The
  /// watermark lags behind it.
  std::optional<Offset> progress{};
  std::int32_t incarnation = 0;  ///< how often the topic was found recreated; part of an `offset` message id
  /// True if the last owner released the partition, or there was none. False if it may have died (see Trials).
  bool is_clean = true;
  std::string store{};  ///< names the store that counts the epoch, equally in all processes
};

/// How far a partition is settled, as its owner reports it.
struct WatermarkUpdate {
  Fence fence;                    ///< the fence of its owner
  Offset watermark = 0;           ///< every message below it is settled
  std::optional<Offset> known{};  ///< the store's last known watermark
};

/// The result of a reported watermark.
enum class WatermarkState : std::uint8_t {
  moved,     ///< stored, or the store's watermark is higher
  behind,    ///< unchanged: the store has a lower watermark than `known`, so it lost commits
  not_ours,  ///< unchanged: the epoch is over, or the store has another history
};

/// A message that will not run, and why.
struct DeadMessage {
  HandlerId handler;                                ///< the handler that refused it
  Fence fence;                                      ///< its slot identifies the partition
  OwnedMessage record;                              ///< the record as it was
  std::optional<MessageId> id;                      ///< absent if the record had none
  DeadReason reason{};                              ///< why it will not run
  std::string error;                                ///< the last error, for people
  int attempts = 0;                                 ///< how often its handler was started and failed by itself
  std::optional<TopicPartitionOffset> dead_letter;  ///< where it was produced; absent: parked in the table only
};

/// How long the store keeps the ids of a handler.
struct KeptIds {
  std::optional<std::chrono::seconds> kept_for;  ///< absent: forever; at least the longest requested duration
  std::optional<Timestamp> all_since;            ///< ids stored before this time may be deleted; absent: all are stored
};

/// The result of a step of the purger.
struct PurgeStep {
  std::int64_t deleted = 0;           ///< number of ids
  std::chrono::milliseconds wait{0};  ///< wait this long before the next step; 0: there is more to do now
  bool rivalled = false;              ///< another purger is at work; nothing was done
};

/// The store of ids. Thread-safe. Every call may throw StoreUnavailable.
class InboxStore {
 public:
  virtual ~InboxStore() = default;
  /// A session for one worker, with one transaction at a time.
  virtual std::unique_ptr<InboxSession> open_session() = 0;
  /// A session within the caller's open transaction, which must outlive it. begin() admits ids, and waits for
  /// concurrent transactions as that transaction would. commit() and rollback() do nothing. After SqlError or StoreBusy
  /// the transaction has failed. Throws Error for a transaction of another store.
  virtual std::unique_ptr<InboxSession> join(Transaction& transaction) = 0;
  /// While true, calls that wait for the store's answer end, and no new call begins. Both throw StoreUnavailable, and a
  /// commit throws CommitInDoubt. For the shutdown of a process whose store hangs. Any thread may call it.
  virtual void cut(bool /*now*/) noexcept {}
  /// The stored data of an id. Absent if the id has not taken effect, or if its transaction has not committed yet.
  virtual std::optional<Recorded> find(HandlerId handler, const MessageId& id) = 0;
  /// The claims, for effects outside of transactions. The object lives as long as a reference to it.
  virtual std::shared_ptr<Claims> claims() = 0;
  /// The producers that number requests. The object lives as long as a reference to it.
  virtual std::shared_ptr<Producers> producers() = 0;
  /// The outbox, where publish() puts messages. The object lives as long as a reference to it.
  virtual std::shared_ptr<Outbox> outbox() = 0;
  /// The record of the messages that ran when a process died. The object lives as long as a reference to it.
  virtual std::shared_ptr<Trials> trials() = 0;
  /// Throws SchemaError, with the command to run, if the schema is missing, changed, or of another version than this
  /// build.
  virtual void check_schema() = 0;
  /// Returns the same id for the same name, forever. Throws Error if all ids are used (32,767).
  virtual HandlerId register_handler(const std::string& name) = 0;
  /// For a handler without a name of its own, which is named after its topic: the first group that used this name. If
  /// it is not `group`, two services would treat each other's ids as their own.
  virtual std::string first_group(HandlerId handler, const std::string& group) = 0;
  /// The current history of the database (Fence::history). It refuses fences of another history.
  virtual std::int64_t history() = 0;
  /// Increments the epochs. Waits for open transactions of the old owner up to `lock_timeout`, then throws StoreBusy.
  virtual std::vector<PartitionClaim> claim_partitions(const std::string& group,
                                                       std::span<const TopicPartition> partitions,
                                                       std::chrono::milliseconds lock_timeout) = 0;
  /// Moves watermarks forward, never back, and only under the given fence. The results have the order of `updates`.
  virtual std::vector<WatermarkState> advance_watermarks(std::span<const WatermarkUpdate> updates) = 0;
  /// The topic was recreated. Increments the incarnation, and sets the watermark to the new log's first offset. Throws
  /// Fenced.
  virtual std::int32_t begin_incarnation(const Fence& fence, Offset first) = 0;
  /// Stores it for `turnstile dlq`. False if this record of this handler is stored already; then nothing changes.
  /// Throws Fenced.
  virtual bool record_dead(const DeadMessage& message) = 0;
  /// The offsets from `first` to `last` of the partition that record_dead() has stored with this reason (absent: with
  /// any). None if the store has another history than the fence. Only the owner of the partition adds to them.
  virtual std::set<Offset> dead_between(HandlerId handler, const Fence& fence, Offset first, Offset last,
                                        std::optional<DeadReason> reason = {}) = 0;

  /// Declares how long this consumer needs the handler's ids (absent: forever). Repeat it every ten minutes. A
  /// declaration stays in effect for the declared duration. A shorter one does not delete the ids that longer ones
  /// protect.
  virtual KeptIds keep_ids(HandlerId handler, std::optional<std::chrono::seconds> keep_for) = 0;
  /// Deletes up to `most` ids of any handler that are older than their declared duration. It is short, so that it
  /// blocks no other transaction for long. Throws StoreBusy.
  virtual PurgeStep purge_step(std::int64_t most) = 0;
};

}  // namespace turnstile
