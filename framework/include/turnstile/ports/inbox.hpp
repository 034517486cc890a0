#pragma once
// Sessions of the inbox: transactions that admit ids. adapters/postgres and adapters/memory implement them; both pass
// the same contract suite.

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "turnstile/message.hpp"
#include "turnstile/ports/producers.hpp"
#include "turnstile/ports/retries.hpp"
#include "turnstile/transaction.hpp"
#include "turnstile/types.hpp"

namespace turnstile {

/// The stored data of an id that has taken effect.
struct Recorded {
  std::optional<std::int64_t> fingerprint;  ///< a hash of the payload, if one was stored
  std::optional<std::string> response;      ///< the response, if the handler replied
};

}  // namespace turnstile

namespace turnstile::ports {

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
  /// partition's progress is a duplicate, and one row serves all messages. In mode numbered also by their producers'
  /// numbers: a repeated number is a duplicate, and each producer adds one row. In the other modes by their ids, with a
  /// row for each.
  Mode mode = Mode::transactional;
  std::int32_t incarnation = 0;  ///< by_offset, numbered: of the topic; a new incarnation starts anew
  /// Mode numbered: how many numbers the window distinguishes; a multiple of 8.
  std::int64_t window = 1'024;
};

/// The messages of one partition, in a transaction that also has messages of others.
struct InboxShare {
  Fence fence;                          ///< of the partition
  std::span<const InboxEntry> entries;  ///< its messages; lives during the call
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
  /// As begin(), for messages of several partitions, in mode transactional. `scope` has no fence. The result has the order
  /// of the shares and their entries, and so has at_message(). Throws Fenced if one of the epochs is over.
  virtual std::vector<Admission> begin_shared(const InboxScope& scope, std::span<const InboxShare> shares) = 0;
  /// The open transaction, as handlers see it.
  virtual Transaction& transaction() = 0;
  /// Statements that are deferred from here on belong to this message of the batch.
  virtual void at_message(std::size_t index) = 0;
  /// Takes back what was queued since the last at_message(), if none of it was sent: the transaction is then as it was
  /// before. False: something was sent, or the transaction has failed; nothing has changed.
  virtual bool undo_message() noexcept = 0;
  /// Stores the response to a message that begin() found fresh, one for each id. Queued like a deferred statement.
  virtual void respond(const MessageId& id, std::string_view body) = 0;
  /// Puts a message into the outbox. It is sent after the transaction has committed, to the partition of its key, with
  /// `id` as its header message-id; see put_id(). Queued like a deferred statement.
  virtual void publish(const OwnedMessage& message, const MessageId& id) = 0;
  /// Whether these messages may run, as far as stored retries are concerned; in the order of `questions`. Ask only for
  /// ids that begin() admitted: a concurrent transaction that stores a retry of one of them has then ended. The row of a
  /// record that came back stays locked until the transaction ends.
  virtual std::vector<RetryTurn> retry_turns(std::span<const RetryQuestion> questions) = 0;
  /// Queued like deferred statements; commit() must follow. It needs a transaction with fences. If another record with
  /// the id of a deferred message is stored already, that one stays as it is. When a message is settled, the next stored
  /// messages of its key are due.
  virtual void write_retries(const RetryChanges& changes) = 0;
  /// A hint, given in an open transaction: begin() with the same arguments follows its commit() or rollback(). A session
  /// may send both together. If something else follows, what was sent ahead is rolled back; until then it may keep its ids
  /// locked. Never throws, and changes nothing else. `entries` are not used after the call.
  virtual void announce(const InboxScope& scope, std::span<const InboxEntry> entries) noexcept {
    static_cast<void>(scope);
    static_cast<void>(entries);
  }
  /// Sends the deferred statements, and commits. Throws DeferredSqlError, SqlError (a constraint checked at commit),
  /// StoreBusy, StoreUnavailable (nothing was committed), and CommitInDoubt. After an exception no transaction is open.
  virtual void commit() = 0;
  /// Never throws. Safe without an open transaction, and on a lost connection.
  virtual void rollback() noexcept = 0;
  /// The state of the transaction. It distinguishes an error of this session from an error of the same type that a
  /// handler got from another store. The latter leaves this session sound.
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

}  // namespace turnstile::ports
