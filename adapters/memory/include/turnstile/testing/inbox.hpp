#pragma once
// The inbox without a database. It passes the same contract suite as PostgreSQL: ids wait for concurrent transactions,
// claims wait for batches, and a failed statement fails its transaction. It does not understand SQL. It records
// statements, and answers them as the test tells.
//
//   turnstile::testing::MemoryInbox inbox;
//   inbox.answer("SELECT balance FROM account WHERE id = $1", inbox.rows({{"100"}}));
//   … run the handler …
//   EXPECT_EQ(inbox.committed().at(0).sql, "UPDATE account …");

#include <cstddef>
#include <exception>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "turnstile/ports/store.hpp"

namespace turnstile::testing {

/// A statement that a handler ran or deferred.
struct Statement {
  std::string sql;  ///< as the handler wrote it
  /// Numbers and booleans ("t", "f") as text, arrays as {a,b}, bytes in hexadecimal. Absent for NULL.
  std::vector<std::optional<std::string>> params;
  bool deferred = false;    ///< whether defer() queued it
  std::size_t message = 0;  ///< the index of its message in the batch
};

/// How a COMMIT fails.
enum class CommitFault {
  unavailable,         ///< StoreUnavailable, nothing was committed
  busy,                ///< StoreBusy, nothing was committed
  in_doubt_committed,  ///< CommitInDoubt, and it was committed
  in_doubt_lost,       ///< CommitInDoubt, and it was not
  in_doubt_elsewhere,  ///< CommitInDoubt, and it was not; then copies of its new messages took effect elsewhere
  in_doubt_outage,     ///< CommitInDoubt, and it was not; the store is unavailable from then on, see set_unavailable()
};

/// Thread-safe. Sessions may outlive it.
class MemoryInbox final : public ports::Store,
                          public ports::Partitions,
                          public ports::DeadLetterStore,
                          public ports::Retention {
 public:
  MemoryInbox();
  ~MemoryInbox() override;

  // -- Results.
  /// The handlers' statements of committed transactions: in the order of the commits, and within a transaction in the
  /// order of the calls.
  [[nodiscard]] std::vector<Statement> committed() const;
  /// The messages of committed transactions that no relay has removed.
  [[nodiscard]] std::vector<OwnedMessage> published() const;
  /// The response that is stored with the id. Absent: there is none.
  [[nodiscard]] std::optional<std::string> response(HandlerId handler, const MessageId& id) const;
  /// Whether the id has taken effect for this handler.
  [[nodiscard]] bool contains(HandlerId handler, const MessageId& id) const;
  /// The number of stored ids, over all handlers.
  [[nodiscard]] std::size_t size() const;
  /// All dead letters.
  [[nodiscard]] std::vector<ports::DeadMessage> dead() const;
  /// The watermark of this slot. Absent: there is none.
  [[nodiscard]] std::optional<Offset> watermark(std::int32_t slot) const;
  /// The number of commits.
  [[nodiscard]] std::size_t commits() const;
  /// The number of rollbacks.
  [[nodiscard]] std::size_t rollbacks() const;

  // -- What the test prescribes.
  /// Makes rows for the answer of a statement, cell by cell.
  static Rows rows(std::initializer_list<std::vector<std::optional<std::string>>> cells);
  /// Sets the answer of statements with exactly this text. Other statements return no rows, and 1 affected.
  void answer(const std::string& sql, Rows rows);
  /// Statements with exactly this text fail with SqlError.
  void fail(const std::string& sql, const std::string& sqlstate);
  /// Sets a function that is called for every statement, before the answers of answer() and fail(). It may return
  /// nothing. It may throw SqlError, StoreBusy, or StoreUnavailable, which loses only the transaction's connection.
  /// It gets deferred statements when they would reach the server. It runs on the handler's thread, under no lock.
  void on_statement(std::function<std::optional<Rows>(const Statement&)> hook);
  /// Makes the next commit fail like this. Several calls prescribe the failures of several commits, in order.
  void fail_next_commit(CommitFault fault);
  /// The next begin() throws it (StoreBusy, Fenced, …).
  void fail_next_begin(std::exception_ptr error);
  /// While set, every call throws StoreUnavailable, and open transactions are lost.
  void set_unavailable(bool unavailable);
  /// A copy of the tables, as a replica has them that no longer follows.
  struct Tables;
  using Replica = std::shared_ptr<const Tables>;  ///< A copy of the tables at one time.
  /// A copy of the tables as they are now.
  [[nodiscard]] Replica replica() const;
  /// Fails over to this replica. Later commits and open transactions are lost, and the history is another one
  /// (Fence::history). With a replica() of this moment it is a restart that loses nothing.
  void fail_over(const Replica& replica);
  /// check_schema() throws SchemaError with this text. Empty: it passes.
  void set_schema_problem(const std::string& problem);
  /// Ends the leases of all claims.
  void lapse_leases();
  /// Makes all heartbeats of producers older by `by`.
  void age_producers(std::chrono::milliseconds by);
  /// Stores an id, as a transaction would.
  void insert(HandlerId handler, const ports::InboxEntry& entry);

  // -- Store.
  /// A session over these tables.
  std::unique_ptr<ports::InboxSession> open_session() override;
  std::unique_ptr<ports::InboxSession> join(Transaction& transaction) override;
  std::optional<Recorded> find(HandlerId handler, const MessageId& id) override;
  /// Leases run by the steady clock of the process.
  std::shared_ptr<ports::Claims> claims() override;
  /// Sessions run by the system's clock, as the timestamps of records do.
  std::shared_ptr<ports::Producers> producers() override;
  std::shared_ptr<ports::Outbox> outbox() override;
  std::shared_ptr<ports::Trials> trials() override;
  /// Pauses run by the system's clock.
  std::shared_ptr<ports::Pauses> pauses() override;
  ports::Partitions& partitions() noexcept override { return *this; }
  ports::DeadLetterStore& dead_letters() noexcept override { return *this; }
  ports::Retention& retention() noexcept override { return *this; }
  void check_schema() override;
  HandlerId register_handler(const std::string& name) override;
  std::string first_group(HandlerId handler, const std::string& group) override;
  std::int64_t history() override;

  // -- Partitions.
  std::vector<ports::PartitionClaim> claim_partitions(const std::string& group,
                                                      std::span<const TopicPartition> partitions,
                                                      const ports::ClaimWait& wait) override;
  /// See ports::Partitions.
  std::vector<ports::WatermarkState> advance_watermarks(std::span<const ports::WatermarkUpdate> updates) override;
  std::int32_t begin_incarnation(const Fence& fence, Offset first, std::int32_t at_least) override;

  // -- DeadLetterStore.
  bool record_dead(const ports::DeadMessage& message) override;
  std::set<Offset> dead_between(HandlerId handler, const Fence& fence, Offset first, Offset last,
                                std::optional<DeadReason> reason = {}) override;

  // -- Retention.
  /// The longest declared duration stays in effect forever: no time passes in this store, and no id gets old.
  KeptIds keep_ids(HandlerId handler, std::optional<std::chrono::seconds> keep_for) override;
  ports::PurgeStep purge_step(std::int64_t most) override;

  struct State;

 private:
  std::shared_ptr<State> state_;
};

}  // namespace turnstile::testing
