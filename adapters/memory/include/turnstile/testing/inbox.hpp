#pragma once
// The inbox without a database. It passes the contract suite that PostgreSQL passes: ids wait for rivals' open
// transactions, claims wait for batches, a failed statement spoils its transaction. It does not understand SQL: statements are
// recorded, and answered as the test says.
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

#include "turnstile/ports/inbox.hpp"

namespace turnstile::testing {

/// A statement that a handler ran or deferred.
struct Statement {
  std::string sql;  ///< as the handler wrote it
  /// Numbers and booleans ("t", "f") as text, arrays as {a,b}, bytes in hexadecimal; nothing for NULL.
  std::vector<std::optional<std::string>> params;
  bool deferred = false;    ///< whether it came by defer()
  std::size_t message = 0;  ///< place in the batch of the message that it belongs to
};

/// How a COMMIT fails.
enum class CommitFault {
  unavailable,         ///< StoreUnavailable, nothing was committed
  busy,                ///< StoreBusy, nothing was committed
  in_doubt_committed,  ///< CommitInDoubt, and it was committed
  in_doubt_lost,       ///< CommitInDoubt, and it was not
};

/// Thread-safe. Sessions may outlive it.
class MemoryInbox final : public InboxStore {
 public:
  MemoryInbox();
  ~MemoryInbox() override;

  // -- What happened.
  /// The handlers' statements of committed transactions, in the order of commits and in each as they were given.
  [[nodiscard]] std::vector<Statement> committed() const;
  /// What was published in committed transactions, and not taken out by a relay.
  [[nodiscard]] std::vector<OwnedMessage> published() const;
  /// The response that is kept with the id; nothing: there is none.
  [[nodiscard]] std::optional<std::string> response(HandlerId handler, const MessageId& id) const;
  /// Whether the id has taken effect for this handler.
  [[nodiscard]] bool contains(HandlerId handler, const MessageId& id) const;
  /// Ids that are in, over all handlers.
  [[nodiscard]] std::size_t size() const;
  /// All dead letters.
  [[nodiscard]] std::vector<DeadMessage> dead() const;
  /// The watermark of this slot; nothing: none was written.
  [[nodiscard]] std::optional<Offset> watermark(std::int32_t slot) const;
  /// How many transactions were committed.
  [[nodiscard]] std::size_t commits() const;
  /// How many transactions were rolled back.
  [[nodiscard]] std::size_t rollbacks() const;

  // -- What shall happen.
  /// Rows for a statement's answer, cell by cell.
  static Rows rows(std::initializer_list<std::vector<std::optional<std::string>>> cells);
  /// Statements with exactly this text answer so; others answer no rows, one affected.
  void answer(const std::string& sql, Rows rows);
  /// Statements with exactly this text fail with SqlError.
  void fail(const std::string& sql, const std::string& sqlstate);
  /// Asked before those two, for every statement; may return nothing, or throw SqlError, StoreBusy, or StoreUnavailable, which loses the
  /// transaction's connection and no other. Deferred statements reach
  /// it when they would reach the server. Runs on the handler's thread, under no lock.
  void on_statement(std::function<std::optional<Rows>(const Statement&)> hook);
  /// The commits that come next fail so, one each, in the order of these calls.
  void fail_next_commit(CommitFault fault);
  /// The next begin() throws it (StoreBusy, Fenced, …).
  void fail_next_begin(std::exception_ptr error);
  /// While set, everything throws StoreUnavailable, and open transactions are lost.
  void set_unavailable(bool unavailable);
  /// The tables as they are now, as a replica has them that is no longer fed.
  struct Tables;
  using Replica = std::shared_ptr<const Tables>;  ///< A copy of the tables at one time.
  /// The tables as they are now.
  [[nodiscard]] Replica replica() const;
  /// That replica answers from now on: what was committed since is lost, open transactions are too, and the history is another one
  /// (Fence::history). With replica() of this moment: a restart that loses nothing.
  void fail_over(const Replica& replica);
  /// check_schema() throws it as SchemaError; empty: it passes.
  void set_schema_problem(const std::string& problem);
  /// The leases of all claims end now.
  void lapse_leases();
  /// All heartbeats of producers were that much earlier.
  void age_producers(std::chrono::milliseconds by);
  /// Takes an id in, as if a transaction had.
  void insert(HandlerId handler, const InboxEntry& entry);

  // -- InboxStore.
  /// A session over these tables.
  std::unique_ptr<InboxSession> open_session() override;
  std::unique_ptr<InboxSession> join(Transaction& transaction) override;
  std::optional<Recorded> find(HandlerId handler, const MessageId& id) override;
  /// Leases run by the process's steady clock.
  std::shared_ptr<Claims> claims() override;
  /// Sessions run by the system's clock, as the timestamps of records do.
  std::shared_ptr<Producers> producers() override;
  std::shared_ptr<Outbox> outbox() override;
  std::shared_ptr<Trials> trials() override;
  void check_schema() override;
  HandlerId register_handler(const std::string& name) override;
  std::string first_group(HandlerId handler, const std::string& group) override;
  std::int64_t history() override;
  std::vector<PartitionClaim> claim_partitions(const std::string& group, std::span<const TopicPartition> partitions,
                                               std::chrono::milliseconds lock_timeout) override;
  std::vector<WatermarkState> advance_watermarks(std::span<const WatermarkUpdate> updates) override;
  std::int32_t begin_incarnation(const Fence& fence, Offset first) override;
  bool record_dead(const DeadMessage& message) override;
  std::set<Offset> dead_between(HandlerId handler, const Fence& fence, Offset first, Offset last,
                                std::optional<DeadReason> reason = {}) override;
  /// The longest that was said holds for ever here: no time passes in this store, and nothing grows old in it.
  KeptIds keep_ids(HandlerId handler, std::optional<std::chrono::seconds> keep_for) override;
  PurgeStep purge_step(std::int64_t most) override;

  struct State;

 private:
  std::shared_ptr<State> state_;
};

}  // namespace turnstile::testing
