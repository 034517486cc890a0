#pragma once
// The store of ids. Implemented by adapters/postgres and adapters/memory; both pass the same contract suite.

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

/// A message that asks to be let in.
struct InboxEntry {
  MessageId id;                               ///< what identifies the message
  Offset offset = 0;                          ///< of the record
  std::optional<std::int64_t> fingerprint{};  ///< hash of the payload, where the topic keeps one
  std::optional<Request> request{};           ///< where producers number what they send
  /// Claims: it may have taken effect, and the store have lost the record of that. Unless the store knows it, it is parked (or
  /// claimed, under ClaimScope::rerun_unknown).
  bool in_doubt = false;

  /// Whether the message whose id was kept with that fingerprint had another payload.
  [[nodiscard]] bool differs_from(const std::optional<std::int64_t>& kept) const noexcept {
    return kept && fingerprint && *kept != *fingerprint;
  }
};

/// Whether a message of a batch may run.
enum class Admission : std::uint8_t {
  fresh,       ///< its id is now in the inbox, as part of the open transaction
  duplicate,   ///< its id was there, or an earlier entry of the same batch has it
  mismatch,    ///< as duplicate, but the fingerprint that was kept is another one
  outside,     ///< its request number is so far back that nobody knows whether it took effect
  no_session,  ///< its producer is not known, or had expired when it was sent
};

/// What all messages of one transaction have in common.
struct InboxScope {
  HandlerId handler;             ///< the scope of the ids
  std::optional<Fence> fence{};  ///< absent: no partition is behind it
  std::chrono::milliseconds lock_timeout{
      5'000};  ///< longest wait for a rival's open transaction (hazard: blocked-insert)
  std::chrono::milliseconds idle_timeout{30'000};  ///< the server ends our transaction when we fall silent in it
  /// How messages are identified: by ids, a row each (transactional), by offsets (by_offset), or by their producers' numbers (numbered).
  Mode mode = Mode::transactional;
  std::int32_t incarnation = 0;  ///< by_offset, numbered: of the topic; another one begins anew
  std::int64_t window = 1'024;   ///< numbered: how many numbers back are remembered; a multiple of 8
};

/// What is kept of an id that has taken effect.
struct Recorded {
  std::optional<std::int64_t> fingerprint;  ///< a hash of the payload, where one was kept
  std::optional<std::string> response;      ///< what was replied, where anything was
};

/// How the transaction stands that begin() opened last.
enum class Standing : std::uint8_t {
  sound,        ///< as far as is known, it can be committed
  failed,       ///< the store refused something in it, or it is not open any more
  busy,         ///< it failed because another transaction was in its way: the whole may be tried again
  lost,         ///< a statement in it found that the connection to the store is lost
  lost_unseen,  ///< the connection was lost, and no statement in it has found that yet
};

/// One transaction at a time, on one thread at a time. Destroying a session with an open transaction rolls it back.
class InboxSession {
 public:
  virtual ~InboxSession() = default;

  /// Opens a transaction, checks the fence, and takes the ids in. The answer has the order of `entries`. Of equal ids in
  /// one batch the first is fresh, the others are duplicates. In modes by_offset and numbered, the transaction of a batch also says that
  /// all up to its last one are done.
  /// Throws Fenced (the epoch is no longer ours, or the store has another history than the fence), StoreBusy (try the whole again),
  /// StoreUnavailable. After a throw no transaction is open.
  virtual std::vector<Admission> begin(const InboxScope& scope, std::span<const InboxEntry> entries) = 0;
  /// The handlers' view of the open transaction.
  virtual Transaction& transaction() = 0;
  /// Statements that are deferred from here on belong to this place in the batch.
  virtual void at_message(std::size_t index) = 0;
  /// Keeps the response to a message that begin() found fresh; one for each id. Queued like a deferred statement.
  virtual void respond(const MessageId& id, std::string_view body) = 0;
  /// Puts a message into the outbox: it is sent once the transaction has committed, to the partition that its key gives, with `id`
  /// as its header message-id; see put_id(). Queued like a deferred statement.
  virtual void publish(const OwnedMessage& message, const MessageId& id) = 0;
  /// Sends what was deferred, and commits. Throws DeferredSqlError, SqlError (a constraint checked at commit),
  /// StoreBusy, StoreUnavailable (nothing was committed), CommitInDoubt. After any of them no transaction is open.
  virtual void commit() = 0;
  /// Never throws; safe without an open transaction, or on a dead connection.
  virtual void rollback() noexcept = 0;
  /// Tells an error of this session from one of the same type that a handler got from another store: that one leaves it sound.
  [[nodiscard]] virtual Standing standing() noexcept = 0;

  /// Which ids are in the inbox, committed, in the order asked; none where the store has another history than the fence. Opens no
  /// transaction. Throws StoreUnavailable.
  virtual std::vector<bool> settled(HandlerId handler, const std::optional<Fence>& fence,
                                    std::span<const MessageId> ids) = 0;
  /// The responses that are kept, in the order asked: what is committed, and in an open transaction its own. Throws
  /// StoreUnavailable; in an open transaction also what commit() throws, and the transaction is then to be rolled back.
  virtual std::vector<std::optional<std::string>> responses(HandlerId handler, std::span<const MessageId> ids) = 0;
};

/// What the store knows of a partition that the group has just been given.
struct PartitionClaim {
  TopicPartition at;                ///< the partition
  Fence fence;                      ///< with the epoch just bumped, and the history of the store that answered
  std::optional<Offset> watermark;  ///< every message below it is settled in this database
  /// The highest offset that a handler numbers its records up to, and has done (modes by_offset, numbered): the watermark lags behind it.
  std::optional<Offset> progress{};
  std::int32_t incarnation = 0;  ///< how often the topic was found recreated; part of an `offset` message id
  bool is_clean = true;  ///< the last owner has released it, or there was none; false: it may have died (see Trials)
  std::string store{};   ///< which store counts the epoch; another one has another name, in all processes alike
};

/// How far a partition is settled, as its owner reports it.
struct WatermarkUpdate {
  Fence fence;                    ///< under which it is owned
  Offset watermark = 0;           ///< every message below it is settled
  std::optional<Offset> known{};  ///< what the store had when it was last heard of
};

/// What became of a watermark that an owner reported.
enum class WatermarkState : std::uint8_t {
  moved,     ///< it is there, or the store's is further
  behind,    ///< the store has less than what was known: it was taken back to an earlier time. Left alone
  not_ours,  ///< the epoch is over, or the store has another history. Left alone
};

/// A message that will not be run: what it was, and why.
struct DeadMessage {
  HandlerId handler;                                ///< the handler that refused it
  Fence fence;                                      ///< its slot names the partition
  OwnedMessage record;                              ///< the record as it was
  std::optional<MessageId> id;                      ///< absent when the record had none
  DeadReason reason{};                              ///< why it will not be run
  std::string error;                                ///< the last error, for people
  int attempts = 0;                                 ///< how often its handler was started and failed by itself
  std::optional<TopicPartitionOffset> dead_letter;  ///< where it was produced; absent: parked here only
};

/// What the store promises of a handler's ids.
struct KeptIds {
  std::optional<std::chrono::seconds> kept_for;  ///< nothing: for ever. At least as long as anybody has said
  std::optional<Timestamp> all_since;            ///< ids that were taken in before may be gone; nothing: all are there
};

/// What one step of the purger did.
struct PurgeStep {
  std::int64_t deleted = 0;           ///< ids
  std::chrono::milliseconds wait{0};  ///< come again then; 0: there is more to do now
  bool rivalled = false;              ///< another purger is at work, nothing was done
};

/// Thread-safe. Every call may throw StoreUnavailable.
class InboxStore {
 public:
  virtual ~InboxStore() = default;
  /// A session for one worker, with one transaction at a time.
  virtual std::unique_ptr<InboxSession> open_session() = 0;
  /// A session within somebody's open transaction, which must outlive it: begin() takes ids in and waits for rivals as long as that
  /// transaction would, commit() and rollback() do nothing, and what throws SqlError or StoreBusy has spoilt the transaction.
  /// Throws Error for a transaction of another store.
  virtual std::unique_ptr<InboxSession> join(Transaction& transaction) = 0;
  /// While true: calls that wait for the store's answer end, and new ones are not begun; both throw StoreUnavailable, a commit
  /// CommitInDoubt. For the end of a process whose store hangs. From any thread.
  virtual void cut(bool /*now*/) noexcept {}
  /// What is kept of an id; nothing when it has not taken effect (or no transaction with it has committed yet).
  virtual std::optional<Recorded> find(HandlerId handler, const MessageId& id) = 0;
  /// Who is at work on what, for effects elsewhere. Lives as long as somebody holds it.
  virtual std::shared_ptr<Claims> claims() = 0;
  /// Who numbers requests. Lives as long as somebody holds it.
  virtual std::shared_ptr<Producers> producers() = 0;
  /// Where publish() puts messages. Lives as long as somebody holds it.
  virtual std::shared_ptr<Outbox> outbox() = 0;
  /// What was running when a process died. Lives as long as somebody holds it.
  virtual std::shared_ptr<Trials> trials() = 0;
  /// Throws SchemaError with the command to run when the schema is missing, older or newer than this build, or changed.
  virtual void check_schema() = 0;
  /// The same name gives the same id for ever. Throws Error when the ids are used up (32,767).
  virtual HandlerId register_handler(const std::string& name) = 0;
  /// For a handler that has its topic's name because nobody has named it: which group is the first whose handler has it so. Where it is not
  /// this one, two services would take each other's ids for their own.
  virtual std::string first_group(HandlerId handler, const std::string& group) = 0;
  /// The number of the history that the database has now (Fence::history): fences of another one are refused.
  virtual std::int64_t history() = 0;
  /// Bumps the epochs, waiting for open transactions of the old owner at most `lock_timeout` (then StoreBusy).
  virtual std::vector<PartitionClaim> claim_partitions(const std::string& group,
                                                       std::span<const TopicPartition> partitions,
                                                       std::chrono::milliseconds lock_timeout) = 0;
  /// Moves watermarks forward, never back, and only under the fence given. In the order of `updates`.
  virtual std::vector<WatermarkState> advance_watermarks(std::span<const WatermarkUpdate> updates) = 0;
  /// The topic was recreated: counts the incarnation up, and the watermark is where it begins now. Throws Fenced.
  virtual std::int32_t begin_incarnation(const Fence& fence, Offset first) = 0;
  /// Keeps it for `turnstile dlq`. False when this record of this handler is there already: nothing is changed then. Throws Fenced.
  virtual bool record_dead(const DeadMessage& message) = 0;
  /// Which of the partition's records from `first` to `last` record_dead() knows, with this reason (nothing: with any); none where the
  /// store has another history than the fence. Whoever has claimed the partition alone adds to them.
  virtual std::set<Offset> dead_between(HandlerId handler, const Fence& fence, Offset first, Offset last,
                                        std::optional<DeadReason> reason = {}) = 0;

  /// Says that this consumer needs the handler's ids for so long (nothing: for ever); to be said again every ten minutes. What is said
  /// holds for as long as it says: who says less than others have said changes nothing for the ids that they count on.
  virtual KeptIds keep_ids(HandlerId handler, std::optional<std::chrono::seconds> keep_for) = 0;
  /// Deletes at most `most` ids of any handler that are older than they are kept. Short, so that nobody waits for it. Throws StoreBusy.
  virtual PurgeStep purge_step(std::int64_t most) = 0;
};

}  // namespace turnstile
