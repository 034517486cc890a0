#pragma once
// Queries and changes for operators: which message was seen, how much is stored, what was dead-lettered. The verbs
// `inbox`, `dlq` and `doctor` of the command line use it. A program may use it too.
//
// Every call is a short transaction (purge() runs many). A statement timeout bounds it, so that no call hangs. Every
// call may throw StoreUnavailable (not reachable, or login refused), StoreBusy (a wait for a lock or an answer was too
// long), and SqlError. It may throw SchemaError if the tables do not exist; the text names the command that creates
// them.

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "turnstile/config.hpp"
#include "turnstile/message.hpp"
#include "turnstile/postgres/dead.hpp"
#include "turnstile/postgres/retries.hpp"
#include "turnstile/postgres/rewind.hpp"
#include "turnstile/types.hpp"

namespace turnstile::postgres {

/// A row of the inbox: the id has taken effect.
struct SeenMessage {
  std::string handler;                      ///< the handler's name
  GroupPartition from;                      ///< group and topic are empty if the fence row does not exist
  Offset offset = 0;                        ///< of the record
  DatabaseTime seen_at;                     ///< when the id was stored
  std::optional<std::int64_t> fingerprint;  ///< a hash of the payload, if the topic stores one
  /// It came over HTTP or through Inbox, not from a partition: `from` and `offset` have no meaning.
  bool by_call = false;
};

/// A message of a leased topic that is not done.
struct ClaimedMessage {
  std::string handler;      ///< the handler's name
  std::string state;        ///< claimed | unknown (its lease has ended) | failed | parked
  std::int64_t fence = 0;   ///< counts how often the message was claimed
  DatabaseTime claimed_at;  ///< when its last owner claimed it
  DatabaseTime expires_at;  ///< when its lease ends, or ended
  GroupPartition from;      ///< group and topic are empty if the fence row does not exist
  Offset offset = 0;        ///< of the record
  std::string error;        ///< failed: why
  bool by_call = false;     ///< as in SeenMessage
};

/// The rows of a handler.
struct HandlerRows {
  std::string handler;                 ///< the handler's name
  std::int64_t rows = 0;               ///< ids in the inbox
  std::optional<DatabaseTime> oldest;  ///< absent without rows
  std::optional<DatabaseTime> newest;  ///< absent without rows
  std::int64_t dead = 0;               ///< dead letters that were not replayed
  std::int64_t claimed = 0,            ///< claims whose lease has not ended
      unknown = 0,                     ///< claims whose lease has ended
      failed = 0,                      ///< claims of messages that failed
      parked = 0;                      ///< claims of parked messages
};

/// A partition in the tables.
struct PartitionState {
  GroupPartition of;                     ///< the group and the partition
  Epoch epoch;                           ///< of its last owner
  std::int32_t incarnation = 0;          ///< of the partition's log
  DatabaseTime claimed_at;               ///< when its last owner claimed it
  std::optional<Offset> watermark;       ///< how far it is settled; absent: no watermark was stored yet
  std::optional<DatabaseTime> moved_at;  ///< when the watermark moved last
};

/// The contents of the inbox.
struct InboxStats {
  std::vector<HandlerRows> handlers;       ///< in the order of their names
  std::vector<PartitionState> partitions;  ///< by group, topic, partition
  std::int64_t table_bytes = 0;            ///< of the inbox
  std::int64_t index_bytes = 0;            ///< of the inbox's indexes
};

/// What purge() deletes, and in which steps.
struct PurgeOptions {
  std::chrono::seconds older_than{};                   ///< only ids that are older
  std::optional<std::string> handler;                  ///< absent: all handlers
  std::int64_t batch = 10'000;                         ///< the largest number of rows in a transaction
  std::function<bool(std::int64_t deleted)> on_batch;  ///< called between transactions; false stops
};

/// Why a purge ended.
enum class PurgeEnd : std::uint8_t {
  complete,  ///< nothing older is left
  stopped,   ///< on_batch returned false
  rivalled,  ///< another purge holds the lock and continues the work (hazard: purge-locks)
};

/// The result of purge().
struct PurgeResult {
  std::int64_t deleted = 0;           ///< ids
  PurgeEnd end = PurgeEnd::complete;  ///< why it ended
};

/// How long the ids of a handler are kept.
struct KeptFor {
  std::string handler;                           ///< the handler's name
  std::optional<std::chrono::seconds> kept_for;  ///< absent: forever
};

/// For `doctor`: whether old ids are deleted.
struct RetentionReport {
  std::int64_t bytes = 0;                ///< of the inbox and its indexes
  std::int64_t rows_about = 0;           ///< as PostgreSQL estimates it
  std::optional<DatabaseTime> swept_at;  ///< when a purge last went through the whole inbox; absent: never
  DatabaseTime now;                      ///< of the server
  std::vector<KeptFor> kept;             ///< handlers with a declared duration, in the order of their names
};

/// A published message that the broker refuses permanently.
struct RefusedRecord {
  std::int64_t number = 0;         ///< its number for operators
  std::string topic;               ///< the topic to send it to
  std::optional<std::string> key;  ///< of the record
  std::int64_t bytes = 0;          ///< of key, payload and headers
  std::string why;                 ///< the broker's error
  DatabaseTime written_at;         ///< when the handler published it
};

/// A published message that is not due yet.
struct ScheduledRecord {
  std::int64_t number = 0;         ///< its number in the table
  MessageId id;                    ///< sent as header message-id
  std::string topic;               ///< the topic to send it to
  std::optional<std::string> key;  ///< of the record
  std::int64_t bytes = 0;          ///< of key, payload and headers
  DatabaseTime due_at;             ///< it is sent then, or later
  DatabaseTime written_at;         ///< when the handler published it
};

/// What handlers sent because of a message.
struct MessageTrail {
  /// The stored response of a handler.
  struct Reply {
    std::string handler;      ///< the handler's name
    DatabaseTime replied_at;  ///< when its transaction began
    std::int64_t bytes = 0;   ///< of the response
  };
  /// A published message that was not sent yet.
  struct Record {
    MessageId id;                        ///< sent as header message-id
    std::string topic,                   ///< the topic to send it to
        state;                           ///< waiting | refused | scheduled
    DatabaseTime written_at;             ///< when its transaction began
    std::optional<DatabaseTime> due_at;  ///< scheduled: it is sent then, or later
    /// The transaction in which the message took effect has written it; with a batch, for any of its messages. False:
    /// it has the message's own id.
    bool same_transaction = false;
  };
  std::vector<Reply> replies;  ///< in the order of the handlers' names
  std::vector<Record> outbox;  ///< at most 50
};

/// The contents of the outbox.
struct OutboxStats {
  std::int64_t scheduled = 0;              ///< records that are not due yet
  std::optional<DatabaseTime> next_due{};  ///< of these, when the first is due
  std::int64_t waiting = 0;                ///< records to be sent
  std::optional<DatabaseTime> oldest;      ///< of the waiting records
  std::int64_t refused = 0;                ///< records that the broker refuses
  std::vector<std::string> relays;         ///< processes that own shards now
  DatabaseTime now;                        ///< of the server
};

/// What waits for an operator's decision, or for another attempt.
struct WaitingReport {
  /// Dead letters of a handler with the same reason.
  struct Dead {
    std::string handler,     ///< the handler's name
        reason;              ///< as in the table: see DeadReason
    std::int64_t count = 0;  ///< how many wait
    DatabaseTime oldest;     ///< when the oldest became a dead letter
  };
  /// The claims of a handler.
  struct OfHandler {
    std::string handler;                 ///< the handler's name
    std::int64_t claimed = 0,            ///< claims whose lease has not ended
        unknown = 0,                     ///< claims whose lease has ended
        failed = 0,                      ///< claims of messages that failed
        parked = 0;                      ///< claims of parked messages
    std::vector<MessageId> undecided{};  ///< the oldest unknown and parked claims, at most 5
    /// Of the failed claims, those with a waiting dead letter: they run again only if it is replayed.
    std::int64_t dead = 0;
  };
  std::vector<Dead> dead;                ///< not replayed yet; the most frequent first
  std::int64_t replays_in_doubt = 0;     ///< replays that began and were not recorded as done
  std::vector<std::int64_t> in_doubt{};  ///< the numbers of the oldest of them, at most 5
  std::vector<OfHandler> claims;         ///< handlers with claims, in the order of their names
  DatabaseTime now;                      ///< of the server
};

/// For `doctor`: the server, the role and its rights. For the server's settings see lint_server().
struct ServerReport {
  std::string version;         ///< "15.18 (Debian 15.18-0+deb12u1)"
  int version_number = 0;      ///< 150018
  std::string user;            ///< the role of the connection
  bool writable = false;       ///< false for a standby, and with default_transaction_read_only
  bool schema_exists = false;  ///< whether the schema exists
  /// Rights that a consumer lacks: "INSERT on inbox". Tables and columns that do not exist are left out.
  std::vector<std::string> missing_rights;
  std::string grants;  ///< the statements that would grant them
};

/// For `doctor` and `inbox purge`: the server's clock.
struct ClockReport {
  std::chrono::seconds ahead{};  ///< of this machine's clock; can be negative
  std::string held;              ///< if not empty: why no id is deleted for its age, and what to do
};

/// The versions of the client libraries: libpqxx and libpq. "6.4.5", "15.18".
struct ClientVersions {
  std::string libpqxx;  ///< as compiled against
  std::string libpq;    ///< as loaded
};
/// The versions in this process.
ClientVersions client_versions();

/// A connection for operators' calls. The first call opens it, and the next call after an error opens it again. One
/// thread at a time may use it.
class Admin {
 public:
  /// Does not connect yet. Throws ConfigError if it cannot parse the URL or the schema.
  explicit Admin(const PostgresSettings& settings);
  ~Admin();
  /// Moves the connection.
  Admin(Admin&&) noexcept;
  /// Moves the connection.
  Admin& operator=(Admin&&) noexcept;

  /// The handlers for which the id has taken effect, in the order of their names.
  std::vector<SeenMessage> inspect(const MessageId& id, const std::optional<std::string>& handler);
  /// The claims under this id: claimed, failed or parked.
  std::vector<ClaimedMessage> claims(const MessageId& id, const std::optional<std::string>& handler);
  /// The stored responses to the message, and messages of its transactions that were not sent yet.
  MessageTrail trail(const MessageId& id);
  /// How many ids are stored, how old they are, and how far partitions are settled.
  InboxStats stats();
  /// The names of all handlers in the tables.
  [[nodiscard]] std::vector<std::string> handlers();
  /// The topics of the partitions that consumers have claimed in this schema, in the order of their names.
  [[nodiscard]] std::vector<std::string> topics();
  /// The highest partition of the topic that a consumer has claimed in this schema. Absent: none has.
  [[nodiscard]] std::optional<std::int32_t> last_partition(const std::string& topic);
  /// Decides about a message that may have taken effect. `done`: it is done. Otherwise it may run again when it is next
  /// delivered. Returns the numbers of its waiting dead letters; absent if it is not parked.
  std::optional<std::vector<std::int64_t>> unpark(const MessageId& id, const std::string& handler, bool done);
  /// Deletes the id and its response, so that the message may take effect again for this handler. False if the id was
  /// not stored.
  bool forget(const MessageId& id, const std::string& handler);
  /// Deletes old ids, in transactions of up to `batch` rows. Only one purge can run in a schema at a time.
  PurgeResult purge(const PurgeOptions& options);
  /// How long ids are kept, as consumers have declared it. Handlers without a declaration are left out.
  std::vector<KeptFor> kept(const std::optional<std::string>& handler);
  /// How far the server's clock is ahead of this machine's, and whether this prevents the deletion of ids.
  ClockReport clock();
  /// For actions outside the database that its owner decides about. Throws StoreUnavailable if the role is not a member of
  /// the owner of the tables.
  void require_owner();
  /// Handlers with ids and without a declared duration.
  std::vector<std::string> undeclared(const std::optional<std::string>& handler);
  /// Whether old ids are deleted.
  RetentionReport retention();

  /// Dead letters, in the order of the time when they died. A filter by topic, handler, reason and time is an index
  /// scan as long as it has no header and no text, and leaves out what was replayed. Any other filter reads the dead
  /// letters of the time span, in statements of a bounded size.
  DeadPage dead(const DeadFilter& filter);
  /// A dead letter with its record. Absent: there is none with this number.
  std::optional<DeadRecord> load_dead(std::int64_t number);
  /// The record as it died, before any edit. Absent: there is no dead letter with this number.
  std::optional<DeadRecord> load_dead_as_died(std::int64_t number);
  /// Counts dead letters by topic, handler, reason and, with `by_error`, error; the largest groups first, at most
  /// `filter.most`. Errors that differ only in numbers and hexadecimal ids are one error.
  DeadGroups dead_groups(const DeadFilter& filter, bool by_error = true);
  /// Replaces payload and headers of a dead letter, and records what they were. False if the row has changed since
  /// `seen` was loaded.
  bool edit_dead(const DeadRecord& seen, const OwnedMessage& edited, const std::string& by);
  /// Deletes dead letters in transactions of a bounded size, the oldest first. It leaves out those whose replay is in
  /// doubt, and those that another session replays.
  DeadPurgeResult purge_dead(const DeadPurge& purge);
  /// How many dead letters were not replayed, by topic; the most first.
  std::vector<DeadOfTopic> dead_by_topic();
  /// The highest number of a dead letter, replayed or not. 0: there is none.
  std::int64_t newest_dead();
  /// For dead letters whose second copy the inbox could not detect. Commits that a replay begins, with a token of its
  /// own. Then locks the row, calls `publish` and commits the end of the replay. `publish` gets the dead letter with
  /// the token of this replay. It returns whether the record was published; if not, the row gets its earlier value
  /// back. If `publish` throws, or the end of the replay cannot be committed, the replay is in doubt.
  /// Returns false, without calling `publish`, if the row has changed since `seen` was loaded: another operator replays
  /// it. While `publish` runs, other calls for this dead letter wait for the row, and throw StoreBusy after 5 s.
  bool replay_once(const DeadSummary& seen, const std::function<bool(const DeadSummary& begun)>& publish);
  /// Records that a dead letter in doubt was published. False if its row has changed since `seen` was loaded. Throws
  /// StoreBusy if its replay still runs.
  bool settle_replay(const DeadSummary& seen);
  /// Marks the row, then calls `publish`, then commits. Nothing is therefore published that this role cannot mark, or
  /// that another operator publishes at the same time.
  /// If `publish` throws, the row is not marked. After a crash before the commit the row is not marked, although the
  /// record may have been published.
  /// Returns false, without calling `publish`, if the row has changed since `seen` was loaded.
  bool mark_replayed(const DeadSummary& seen, const std::function<void()>& publish);
  /// What waits for a decision, or for another attempt.
  WaitingReport waiting();

  /// The partitions of a topic that a group has claimed, with what a handler knows of them.
  HandledTopic handled_topic(const std::string& group, const std::string& topic, const std::string& handler);
  /// What would happen to each of these messages if a handler got it again, in the order of `ids`.
  std::vector<IdFate> fates(const std::string& handler, std::span<const MessageId> ids);

  /// How many messages wait in the outbox, since when, and which processes send it.
  OutboxStats outbox();
  /// Refused messages in the order of their numbers, at most `most`.
  std::vector<RefusedRecord> refused(std::int64_t most);
  /// Scheduled messages, in the order of their times.
  std::vector<ScheduledRecord> scheduled(const std::optional<std::string>& topic, std::int64_t most);
  /// Deletes the scheduled messages with this id: they are never sent. Returns how many there were.
  std::int64_t cancel_scheduled(const MessageId& id);
  /// Stored retries: those that were sent first, then in the order of their times.
  std::vector<StoredRetry> retries(const RetryFilter& filter, std::int64_t most);
  /// How many there are. It reads all of them.
  RetryCounts count_retries(const RetryFilter& filter);
  /// Makes those due that are not due yet. With `also_sent`, or if one is named by its number, also what was sent before,
  /// in case its record is lost. A message behind another one of its key keeps its place. Returns how many.
  std::int64_t retry_now(const RetryFilter& filter, bool also_sent = false);
  /// Makes dead letters of them, with DeadReason::dropped. Waits for a handler that runs one of them. Returns how many.
  std::int64_t drop_retries(const RetryFilter& filter);
  /// Moves a refused message, or all, back into the outbox, behind the waiting messages. Returns how many.
  std::int64_t retry_refused(std::optional<std::int64_t> number);
  /// Deletes a refused message. False if there is none with this number.
  bool drop_refused(std::int64_t number);

  /// The server, the role and its rights.
  ServerReport server();

 private:
  friend class AuditSnapshot;
  class Session;
  std::unique_ptr<Session> session_;
};

}  // namespace turnstile::postgres
