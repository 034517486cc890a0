#pragma once
// What an operator asks of the tables: which message was seen, how much is kept, what died. Behind the verbs `inbox`,
// `dlq` and `doctor` of the command line; a program may call it too.
//
// Every call is one short transaction (purge() is many), bounded by a statement timeout, so that a question never hangs.
// Every call may throw StoreUnavailable (not reached, not let in), StoreBusy (waited too long for a lock or for an
// answer), SchemaError (the tables are not there: which command makes them) and SqlError.

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
#include "turnstile/types.hpp"

namespace turnstile::postgres {

/// Of the database's clock. A time in a row that was changed by hand to 'infinity' is given as the year 292277, '-infinity' as 4713 BC.
using DatabaseTime = std::chrono::sys_time<std::chrono::microseconds>;

/// A partition as one consumer group reads it.
struct GroupPartition {
  std::string group;  ///< the consumer group
  TopicPartition at;  ///< the topic and the partition
};

/// One row of the inbox: the id has taken effect.
struct SeenMessage {
  std::string handler;                      ///< the handler's name
  GroupPartition from;                      ///< group and topic are empty when the fence row is gone
  Offset offset = 0;                        ///< of the record
  DatabaseTime seen_at;                     ///< when the id was stored
  std::optional<std::int64_t> fingerprint;  ///< a hash of the payload, where the topic keeps one
  bool by_call = false;  ///< it came over HTTP or through Inbox, and from no partition: `from` and `offset` say nothing
};

/// A message of a leased topic that is not done.
struct ClaimedMessage {
  std::string handler;      ///< the handler's name
  std::string state;        ///< claimed | unknown (its lease has ended) | failed | parked
  std::int64_t fence = 0;   ///< counts how often the message was claimed
  DatabaseTime claimed_at;  ///< when its last owner claimed it
  DatabaseTime expires_at;  ///< when its lease ends, or ended
  GroupPartition from;      ///< group and topic are empty when the fence row is gone
  Offset offset = 0;        ///< of the record
  std::string error;        ///< failed: why
  bool by_call = false;     ///< as in SeenMessage
};

/// What one handler has in the tables.
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

/// A partition as the tables know it.
struct PartitionState {
  GroupPartition of;                     ///< the group and the partition
  Epoch epoch;                           ///< of its last owner
  std::int32_t incarnation = 0;          ///< of the partition's log
  DatabaseTime claimed_at;               ///< when its last owner claimed it
  std::optional<Offset> watermark;       ///< how far it is settled; absent: nothing was written yet
  std::optional<DatabaseTime> moved_at;  ///< when the watermark moved last
};

/// What the inbox holds.
struct InboxStats {
  std::vector<HandlerRows> handlers;       ///< in the order of their names
  std::vector<PartitionState> partitions;  ///< by group, topic, partition
  std::int64_t table_bytes = 0;            ///< of the inbox
  std::int64_t index_bytes = 0;            ///< of the inbox's indexes
};

/// What purge() deletes, and in which steps.
struct PurgeOptions {
  std::chrono::seconds older_than{};                   ///< only ids of this age
  std::optional<std::string> handler;                  ///< all handlers when absent
  std::int64_t batch = 10'000;                         ///< most rows in one transaction
  std::function<bool(std::int64_t deleted)> on_batch;  ///< called between transactions; false stops
};

/// Why a purge ended.
enum class PurgeEnd : std::uint8_t {
  complete,  ///< nothing older is left
  stopped,   ///< on_batch said so
  rivalled,  ///< another purge holds the lock: the rest is left to it (hazard: purge-locks)
};

/// What purge() did.
struct PurgeResult {
  std::int64_t deleted = 0;           ///< ids
  PurgeEnd end = PurgeEnd::complete;  ///< why it ended
};

/// For how long one handler's ids are kept.
struct KeptFor {
  std::string handler;                           ///< the handler's name
  std::optional<std::chrono::seconds> kept_for;  ///< nothing: for ever
};

/// What `doctor` looks at: whether old ids are deleted.
struct RetentionReport {
  std::int64_t bytes = 0;                ///< of the inbox with its indexes
  std::int64_t rows_about = 0;           ///< as the server guesses
  std::optional<DatabaseTime> swept_at;  ///< when all of it was last looked through for old ids; nothing: never
  DatabaseTime now;                      ///< of the server
  std::vector<KeptFor> kept;             ///< handlers of which somebody has said it, in the order of their names
};

/// One dead letter, without its record.
struct DeadSummary {
  std::int64_t number = 0;                  ///< how a person names it
  std::string handler;                      ///< the handler that refused it
  GroupPartition from;                      ///< where the record was
  Offset offset = 0;                        ///< of the record
  std::optional<MessageId> id;              ///< absent: it had none
  std::string reason;                       ///< as the table has it: see DeadReason
  std::string error;                        ///< the last error
  int attempts = 0;                         ///< as in the header turnstile-attempts
  DatabaseTime died_at;                     ///< when it became a dead letter
  std::optional<DatabaseTime> replayed_at;  ///< absent: it waits
  /// begin_replay() was called, and finish_replay() was not: another process replays it now, or has died meanwhile. Then nobody knows
  /// whether it was published, and `replayed_at` is absent.
  bool replay_in_doubt = false;
};

/// With the record, byte by byte, as it was first consumed; without its timestamp where that is after the year 287396, which the table
/// does not hold.
struct DeadRecord {
  DeadSummary summary;                              ///< all but the record
  OwnedMessage record;                              ///< the record
  std::optional<TopicPartitionOffset> dead_letter;  ///< where it was produced; absent: parked in the table only
  std::int32_t incarnation = 0;                     ///< of its topic
  /// Why `record` is not what was consumed: somebody has changed the row. Nothing: it is.
  std::optional<std::string> damage{};
};

/// Which dead letters to list. What is absent does not narrow the list.
struct DeadFilter {
  std::optional<std::string> handler;   ///< of this handler
  std::optional<std::string> topic;     ///< of this topic
  std::optional<MessageId> id;          ///< of this message id
  bool with_replayed = false;           ///< also those that were replayed; those in doubt are there without it too
  std::int64_t after = 0;               ///< only numbers greater than this
  std::optional<std::int64_t> up_to{};  ///< only numbers up to this
  std::int64_t most = 50;               ///< how many at the most
};

/// A published message that the broker refuses for good.
struct RefusedRecord {
  std::int64_t number = 0;         ///< how a person names it
  std::string topic;               ///< where it was to go
  std::optional<std::string> key;  ///< of the record
  std::int64_t bytes = 0;          ///< of the payload
  std::string why;                 ///< what the broker answered
  DatabaseTime written_at;         ///< when the handler published it
};

/// What the outbox holds.
struct OutboxStats {
  std::int64_t waiting = 0;            ///< records that are to be sent
  std::optional<DatabaseTime> oldest;  ///< of those that wait
  std::int64_t refused = 0;            ///< records that the broker refuses
  std::vector<std::string> relays;     ///< processes that have shards now
  DatabaseTime now;                    ///< of the server
};

/// What waits for somebody to decide, or to be tried again.
struct WaitingReport {
  /// Dead letters of one handler for one reason.
  struct Dead {
    std::string handler,     ///< the handler's name
        reason;              ///< as the table has it: see DeadReason
    std::int64_t count = 0;  ///< how many wait
    DatabaseTime oldest;     ///< when the oldest one died
  };
  /// The claims of one handler.
  struct OfHandler {
    std::string handler;                 ///< the handler's name
    std::int64_t claimed = 0,            ///< claims whose lease has not ended
        unknown = 0,                     ///< claims whose lease has ended
        failed = 0,                      ///< claims of messages that failed
        parked = 0;                      ///< claims of parked messages
    std::vector<MessageId> undecided{};  ///< of the unknown and the parked ones the oldest, at most 5
    std::int64_t dead =
        0;  ///< of the failed ones: their dead letters wait, so they run again only if these are replayed
  };
  std::vector<Dead> dead;                ///< not replayed yet; the most frequent first
  std::int64_t replays_in_doubt = 0;     ///< replays that were begun and not recorded as done
  std::vector<std::int64_t> in_doubt{};  ///< the numbers of the oldest of them, at most 5
  std::vector<OfHandler> claims;         ///< of handlers that have any, in the order of their names
  DatabaseTime now;                      ///< of the server
};

/// What `doctor` looks at; the server's settings are lint_server()'s.
struct ServerReport {
  std::string version;         ///< "15.18 (Debian 15.18-0+deb12u1)"
  int version_number = 0;      ///< 150018
  std::string user;            ///< the role of the connection
  bool schema_exists = false;  ///< whether the schema is there
  std::vector<std::string>
      missing_rights;  ///< of a consumer: "INSERT on inbox"; tables and columns that are not there are left out
  std::string grants;  ///< the statements that would give them
};

/// The server's clock, as `doctor` and `inbox purge` look at it.
struct ClockReport {
  std::chrono::seconds ahead{};  ///< of this machine's clock; may be negative
  std::string held;              ///< not empty: why no id is deleted for its age, and what to do
};

/// The client libraries: libpqxx as it was compiled against, libpq as it was loaded. "6.4.5", "15.18".
struct ClientVersions {
  std::string libpqxx;  ///< as it was compiled against
  std::string libpq;    ///< as it was loaded
};
/// The versions of this process.
ClientVersions client_versions();

/// One connection, opened by the first call and again after an error. Used by one thread at a time.
class Admin {
 public:
  /// Does not connect yet. Throws ConfigError when the URL or the schema cannot be read.
  explicit Admin(const PostgresSettings& settings);
  ~Admin();
  /// Takes the connection over.
  Admin(Admin&&) noexcept;
  /// Takes the connection over.
  Admin& operator=(Admin&&) noexcept;

  /// The handlers that have seen the id, in the order of their names.
  std::vector<SeenMessage> inspect(const MessageId& id, const std::optional<std::string>& handler);
  /// What is claimed, has failed, or is parked under this id.
  std::vector<ClaimedMessage> claims(const MessageId& id, const std::optional<std::string>& handler);
  /// How many ids there are, how old they are, and where partitions stand.
  InboxStats stats();
  /// The names of all handlers that the tables know.
  [[nodiscard]] std::vector<std::string> handlers();
  /// The topics of which a consumer has claimed a partition in this schema, in the order of their names.
  [[nodiscard]] std::vector<std::string> topics();
  /// Decides about a message of which nobody knows whether it took effect: it is done, or it may run again when it is delivered again.
  /// The numbers of its dead letters that wait; nothing when it is not parked.
  std::optional<std::vector<std::int64_t>> unpark(const MessageId& id, const std::string& handler, bool done);
  /// The message may take effect again for this handler; its response goes with it. False when it was not there.
  bool forget(const MessageId& id, const std::string& handler);
  /// Old ids, in transactions of at most `batch` rows; one purge at a time in a schema.
  PurgeResult purge(const PurgeOptions& options);
  /// For how long ids are kept, by what consumers have said; handlers of which nobody has said anything are left out.
  std::vector<KeptFor> kept(const std::optional<std::string>& handler);
  /// How far the server's clock is ahead of this machine's, and whether that keeps ids from being deleted.
  ClockReport clock();
  /// Handlers that have ids, and of which nobody has declared for how long these are needed.
  std::vector<std::string> undeclared(const std::optional<std::string>& handler);
  /// Whether old ids are deleted.
  RetentionReport retention();

  /// In the order of their numbers.
  std::vector<DeadSummary> dead(const DeadFilter& filter);
  /// One dead letter with its record; nothing when there is none of this number.
  std::optional<DeadRecord> load_dead(std::int64_t number);
  /// The highest number of a dead letter, replayed or not; 0 when there is none.
  std::int64_t newest_dead();
  /// Commits that the letter is about to be published, for one whose second copy the inbox could not tell from the first. From here to
  /// finish_replay() it is in doubt. False when there is no such row; without `again` also when it is in doubt, or was replayed.
  bool begin_replay(std::int64_t number, bool again);
  /// The letter was published. False when it is not in doubt.
  bool finish_replay(std::int64_t number);
  /// Marks the row, then calls `publish`, then commits: nothing is published that this role cannot mark, or that another operator
  /// publishes meanwhile. If `publish` throws, the row is not marked. A crash before the commit leaves the row unmarked and the record
  /// possibly published. Returns false, without a call of `publish`, when there is no such row, or it is marked already and `again` is false.
  bool mark_replayed(std::int64_t number, bool again, const std::function<void()>& publish);
  /// What waits for a decision, or to be tried again.
  WaitingReport waiting();

  /// How much waits in the outbox, since when, and which processes send it.
  OutboxStats outbox();
  /// In the order of their numbers, at most `most`.
  std::vector<RefusedRecord> refused(std::int64_t most);
  /// Back into the outbox, behind what waits there: this one, or all. How many.
  std::int64_t retry_refused(std::optional<std::int64_t> number);
  /// False when there is no such refused message.
  bool drop_refused(std::int64_t number);

  /// The server, the role and its rights.
  ServerReport server();

 private:
  class Session;
  std::unique_ptr<Session> session_;
};

}  // namespace turnstile::postgres
