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
  std::string group;
  TopicPartition at;
};

/// One row of the inbox: the id has taken effect.
struct SeenMessage {
  std::string handler;
  GroupPartition from;  ///< group and topic are empty when the fence row is gone
  Offset offset = 0;
  DatabaseTime seen_at;
  std::optional<std::int64_t> fingerprint;
  bool by_call = false;  ///< it came over HTTP or through Inbox, and from no partition: `from` and `offset` say nothing
};

/// A message of a leased topic that is not done.
struct ClaimedMessage {
  std::string handler;
  std::string state;  ///< claimed | unknown (its lease has ended) | failed | parked
  std::int64_t fence = 0;
  DatabaseTime claimed_at;
  DatabaseTime expires_at;
  GroupPartition from;
  Offset offset = 0;
  std::string error;     ///< failed: why
  bool by_call = false;  ///< as in SeenMessage
};

struct HandlerRows {
  std::string handler;
  std::int64_t rows = 0;
  std::optional<DatabaseTime> oldest;  ///< absent without rows
  std::optional<DatabaseTime> newest;
  std::int64_t dead = 0;                                          ///< dead letters that were not replayed
  std::int64_t claimed = 0, unknown = 0, failed = 0, parked = 0;  ///< claims by their state
};

struct PartitionState {
  GroupPartition of;
  Epoch epoch;
  std::int32_t incarnation = 0;
  DatabaseTime claimed_at;
  std::optional<Offset> watermark;
  std::optional<DatabaseTime> moved_at;
};

struct InboxStats {
  std::vector<HandlerRows> handlers;       ///< in the order of their names
  std::vector<PartitionState> partitions;  ///< by group, topic, partition
  std::int64_t table_bytes = 0;
  std::int64_t index_bytes = 0;
};

struct PurgeOptions {
  std::chrono::seconds older_than{};
  std::optional<std::string> handler;                  ///< all handlers when absent
  std::int64_t batch = 10'000;                         ///< most rows in one transaction
  std::function<bool(std::int64_t deleted)> on_batch;  ///< called between transactions; false stops
};

enum class PurgeEnd : std::uint8_t {
  complete,  ///< nothing older is left
  stopped,   ///< on_batch said so
  rivalled,  ///< another purge holds the lock: the rest is left to it (hazard: purge-locks)
};

struct PurgeResult {
  std::int64_t deleted = 0;
  PurgeEnd end = PurgeEnd::complete;
};

struct KeptFor {
  std::string handler;
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

struct DeadSummary {
  std::int64_t number = 0;  ///< how a person names it
  std::string handler;
  GroupPartition from;
  Offset offset = 0;
  std::optional<MessageId> id;
  std::string reason;  ///< as the table has it: see DeadReason
  std::string error;
  int attempts = 0;
  DatabaseTime died_at;
  std::optional<DatabaseTime> replayed_at;
};

/// With the record, byte by byte, as it was first consumed; without its timestamp where that is after the year 287396, which the table
/// does not hold.
struct DeadRecord {
  DeadSummary summary;
  OwnedMessage record;
  std::optional<TopicPartitionOffset> dead_letter;  ///< where it was produced; absent: parked in the table only
  std::int32_t incarnation = 0;                     ///< of its topic
  /// Why `record` is not what was consumed: somebody has changed the row. Nothing: it is.
  std::optional<std::string> damage{};
};

struct DeadFilter {
  std::optional<std::string> handler;
  std::optional<std::string> topic;
  std::optional<MessageId> id;
  bool with_replayed = false;
  std::int64_t after = 0;               ///< only numbers greater than this
  std::optional<std::int64_t> up_to{};  ///< only numbers up to this
  std::int64_t most = 50;
};

/// A published message that the broker refuses for good.
struct RefusedRecord {
  std::int64_t number = 0;  ///< how a person names it
  std::string topic;
  std::optional<std::string> key;
  std::int64_t bytes = 0;  ///< of the payload
  std::string why;
  DatabaseTime written_at;
};

struct OutboxStats {
  std::int64_t waiting = 0;
  std::optional<DatabaseTime> oldest;  ///< of those that wait
  std::int64_t refused = 0;
  std::vector<std::string> relays;  ///< processes that have shards now
};

/// What waits for somebody to decide, or to be tried again.
struct WaitingReport {
  struct Dead {
    std::string handler, reason;
    std::int64_t count = 0;
    DatabaseTime oldest;
  };
  struct OfHandler {
    std::string handler;
    std::int64_t claimed = 0, unknown = 0, failed = 0, parked = 0;  ///< as in HandlerRows
    std::vector<MessageId> undecided{};  ///< of the unknown and the parked ones the oldest, at most 5
    std::int64_t dead =
        0;  ///< of the failed ones: their dead letters wait, so they run again only if these are replayed
  };
  std::vector<Dead> dead;         ///< not replayed yet; the most frequent first
  std::vector<OfHandler> claims;  ///< of handlers that have any, in the order of their names
  DatabaseTime now;               ///< of the server
};

/// What `doctor` looks at; the server's settings are lint_server()'s.
struct ServerReport {
  std::string version;     ///< "15.18 (Debian 15.18-0+deb12u1)"
  int version_number = 0;  ///< 150018
  std::string user;
  bool schema_exists = false;
  std::vector<std::string>
      missing_rights;  ///< of a consumer: "INSERT on inbox"; tables that are not there are left out
  std::string grants;  ///< the statements that would give them
};

/// The server's clock, as `doctor` and `inbox purge` look at it.
struct ClockReport {
  std::chrono::seconds ahead{};  ///< of this machine's clock; may be negative
  std::string held;              ///< not empty: why no id is deleted for its age, and what to do
};

/// The client libraries: libpqxx as it was compiled against, libpq as it was loaded. "6.4.5", "15.18".
struct ClientVersions {
  std::string libpqxx;
  std::string libpq;
};
ClientVersions client_versions();

/// One connection, opened by the first call and again after an error. Used by one thread at a time.
class Admin {
 public:
  /// Does not connect yet. Throws ConfigError when the URL or the schema cannot be read.
  explicit Admin(const PostgresSettings& settings);
  ~Admin();
  Admin(Admin&&) noexcept;
  Admin& operator=(Admin&&) noexcept;

  /// The handlers that have seen the id, in the order of their names.
  std::vector<SeenMessage> inspect(const MessageId& id, const std::optional<std::string>& handler);
  /// What is claimed, has failed, or is parked under this id.
  std::vector<ClaimedMessage> claims(const MessageId& id, const std::optional<std::string>& handler);
  InboxStats stats();
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
  ClockReport clock();
  /// Handlers that have ids, and of which nobody has declared for how long these are needed.
  std::vector<std::string> undeclared(const std::optional<std::string>& handler);
  RetentionReport retention();

  /// In the order of their numbers.
  std::vector<DeadSummary> dead(const DeadFilter& filter);
  std::optional<DeadRecord> load_dead(std::int64_t number);
  /// The highest number of a dead letter, replayed or not; 0 when there is none.
  std::int64_t newest_dead();
  /// False when there is no such row, or it is marked already.
  bool mark_replayed(std::int64_t number);
  /// Marks the row, then calls `publish`, then commits: nothing is published that this role cannot mark, or that another operator
  /// publishes meanwhile. If `publish` throws, the row is not marked. A crash before the commit leaves the row unmarked and the record
  /// possibly published. Returns false, without a call of `publish`, when there is no such row, or it is marked already and `again` is false.
  bool mark_replayed(std::int64_t number, bool again, const std::function<void()>& publish);
  WaitingReport waiting();

  OutboxStats outbox();
  /// In the order of their numbers, at most `most`.
  std::vector<RefusedRecord> refused(std::int64_t most);
  /// Back into the outbox, behind what waits there: this one, or all. How many.
  std::int64_t retry_refused(std::optional<std::int64_t> number);
  /// False when there is no such refused message.
  bool drop_refused(std::int64_t number);

  ServerReport server();

 private:
  class Session;
  std::unique_ptr<Session> session_;
};

}  // namespace turnstile::postgres
