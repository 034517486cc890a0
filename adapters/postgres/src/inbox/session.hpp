#pragma once
// A worker's transactions, one after another.

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "inbox/pqxx_bridge.hpp"
#include "inbox/statements.hpp"
#include "turnstile/ports/inbox.hpp"
#include "turnstile/requests.hpp"
#include "wire/errors.hpp"
#include "wire/locks.hpp"
#include "wire/pool.hpp"

namespace turnstile::postgres {

/// The common data of the store and its sessions. Sessions keep it alive.
struct Shared {
  explicit Shared(const PostgresSettings& given)
      : settings(given), statements(given.schema), handlers(given, given.connections, cut), calls(given, 4, cut) {}
  const std::shared_ptr<std::atomic<bool>> cut = std::make_shared<std::atomic<bool>>(false);
  const PostgresSettings settings;
  const Statements statements;
  Pool handlers;  ///< for the transactions of batches
  Pool calls;     ///< for the store's own calls and look-ups
};

class Session final : public ports::InboxSession, public Transaction {
 public:
  explicit Session(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {}
  ~Session() override { abandon(); }

  std::vector<ports::Admission> begin(const ports::InboxScope& scope,
                                      std::span<const ports::InboxEntry> entries) override;
  std::vector<ports::Admission> begin_shared(const ports::InboxScope& scope,
                                             std::span<const ports::InboxShare> shares) override;
  Transaction& transaction() override { return *this; }
  void at_message(std::size_t index) override;
  bool undo_message() noexcept override;
  void respond(const MessageId& id, std::string_view body) override;
  void publish(const OwnedMessage& message, const MessageId& id) override;
  std::vector<ports::RetryTurn> retry_turns(std::span<const ports::RetryQuestion> questions) override;
  void write_retries(const ports::RetryChanges& changes) override;
  void announce(const ports::InboxScope& scope, std::span<const ports::InboxEntry> entries) noexcept override;
  void commit() override;
  void rollback() noexcept override;
  ports::Standing standing() noexcept override;
  std::vector<bool> settled(HandlerId handler, const std::optional<Fence>& fence,
                            std::span<const MessageId> ids) override;
  std::vector<std::optional<std::string>> responses(HandlerId handler, std::span<const MessageId> ids) override;

  Rows run(std::string_view sql, std::span<const Param> params) override;
  void queue(std::string_view sql, std::span<const Param> params) override;

  pqxx::transaction_base& native();
  /// Runs the adapter's own statements in the open transaction, in one round trip. Throws what run() throws.
  std::vector<Result> run_own(const std::function<void(Pipeline&)>& fill);

 private:
  /// Opens a transaction that takes these entries in. `send` sends the rest, and returns whether each is fresh.
  using Admit = std::function<std::vector<ports::Admission>()>;
  std::vector<ports::Admission> open(const ports::InboxScope& scope, std::span<const ports::InboxEntry> entries,
                                     const Admit& admit);
  /// Before a transaction's first statement.
  void start(const ports::InboxScope& scope);
  void add_begin(const ports::InboxScope& scope);
  std::vector<ports::Admission> admit(const ports::InboxScope& scope, std::span<const ports::InboxEntry> entries);
  bool still_owns(const Fence& fence);
  void send_one(const ports::InboxScope& scope, std::span<const ports::InboxEntry> entries);
  std::vector<ports::Admission> answer_one(const ports::InboxScope& scope, std::span<const ports::InboxEntry> entries);
  // For the transaction that was announced (session_next.cpp).
  /// Whether COMMIT can start it.
  [[nodiscard]] bool may_chain() const;
  void add_next();
  [[nodiscard]] bool is_sent() const noexcept { return next_ && next_->sent.has_value(); }
  /// If it is this one, and its start was sent: the answers. Absent: begin it as usual.
  std::optional<std::vector<ports::Admission>> begin_next(const ports::InboxScope& scope,
                                                          std::span<const ports::InboxEntry> entries);
  Answers take_in(const ports::InboxScope& scope, std::span<const ports::InboxEntry> entries);
  std::vector<ports::Admission> admit_shared(const ports::InboxScope& scope, std::span<const ports::InboxEntry> entries,
                                             std::span<const ports::InboxShare> shares);
  /// `rows`: a row without an id, and the fresh ids.
  std::vector<ports::Admission> admissions_of(const PGresult* rows, HandlerId handler,
                                              std::span<const ports::InboxEntry> entries);
  void add_scope(const ports::InboxScope& scope);
  void add_timeouts(const ports::InboxScope& scope);
  // For numbered messages (session_numbered.cpp).
  std::vector<ports::Admission> admit_numbered(const ports::InboxScope& scope,
                                               std::span<const ports::InboxEntry> entries);
  std::vector<ports::Admission> admit_requests(std::span<const ports::InboxEntry> entries, Offset next,
                                               const PGresult* rows);
  void add_progress(const ports::InboxScope& scope, Offset next);
  void add_window_key();
  void move_windows(const RequestWindows& book);
  void respond_request(const ports::Request& request, std::string_view body);
  std::vector<std::optional<std::string>> request_responses(std::span<const MessageId> ids);
  void compare_fingerprints(HandlerId handler, std::span<const ports::InboxEntry> entries,
                            std::vector<ports::Admission>& admissions);
  void send_entries(std::span<const ports::InboxEntry> entries);
  /// Around the statements of begin(): they are answered in time, and their waits for locks are watched.
  void expect_answers(const ports::InboxScope& scope);
  void have_answers();
  Answers finish();
  /// Runs `send`, which sends statements, and may read their results into `answers`. If the connection is lost in it,
  /// the transaction is lost too. A failure that was read before is then what the handler must know. Otherwise throws
  /// what throw_lost() throws.
  template <class Send>
  void with_connection(Send send, const Answers& answers = {}) {
    try {
      send();
    } catch (const ConnectionLost& lost) {
      lose(lost);
      if (answers.failure) throw_failure(*answers.failure);
      throw_lost(lost);
    }
  }
  Answers send_and_read();
  void queue_own(const std::string& sql);
  void add_retries(const std::vector<const ports::DeferredRetry*>& all);
  void defer_retries(const std::vector<const ports::DeferredRetry*>& all, std::span<const ports::RetryRef> settled);
  /// `add_more` adds the arguments after these.
  Result look_up(const std::string& sql, HandlerId handler, std::span<const MessageId> ids,
                 const std::function<void(ArgumentBlock&)>& add_more = {});
  void require_open(const char* what);
  [[noreturn]] void throw_ended();
  /// Makes a COMMIT of the handler fail. Call it before any statement could commit the transaction, or roll back past
  /// this.
  void guard_commit();
  /// Call it before a statement of a handler can change the role of the transaction, or roll back past this.
  void mark_transaction();
  /// Call it before a statement of the framework that comes after statements of handlers. If they have left another
  /// role in the transaction, or have made it read-only, the current message fails.
  void check_role();
  /// Throws ConnectionLost.
  void add_role_check();
  /// Call it after the last statement of a message. Throws ConnectionLost.
  void check_named_role();
  /// Call it before the first statement of the next message.
  void end_message();
  [[noreturn]] static void throw_role_changed(Owner message);
  /// Call it before a savepoint of the current message: it sets the savepoint that encloses them.
  void enclose_savepoints();
  [[nodiscard]] bool aborted() const;
  void note(const Failure& failure);
  [[noreturn]] void throw_failure(const Failure& failure);
  [[nodiscard]] std::optional<Failure> why_aborted() const;
  [[nodiscard]] std::optional<Failure> refused_commit() const;
  [[noreturn]] void throw_aborted();
  /// For an error of COMMIT itself. No transaction is open any more.
  [[noreturn]] void throw_commit_failure(const Failure& failure);
  [[nodiscard]] bool is_of_own_table(const ServerError& error) const;
  /// Rolls back, and forgets what was announced.
  void abandon() noexcept;
  void close() noexcept;
  /// As close(), after the connection was lost.
  void lose(const ConnectionLost& lost) noexcept;
  /// Call it before a statement of a handler is sent.
  void note_statement(std::string_view sql);
  /// Whether the server's session has the timeouts of `scope`. If not, the transaction sets them, and its end sets them for
  /// the session, unless that is shared with other clients.
  bool has_timeouts(const ports::InboxScope& scope);
  [[nodiscard]] bool has_own_timeouts(const ports::InboxScope& scope) const;
  /// Queues the statement for it, after COMMIT; and reads its answer.
  void add_own_timeouts();
  void note_own_timeouts(const Answers& answers);
  /// Queues the statements that undo a handler's changes to the session. They are sent with the end of the transaction.
  void add_reset();
  [[nodiscard]] bool is_reset(const Answers& answers) const;

  std::shared_ptr<Shared> shared_;
  Pool::Loan loan_;                 // present exactly while a transaction is open, or its start was sent
  std::optional<LockWatch> watch_;  // of its connection, while begin() waits for the answers
  std::unique_ptr<PqxxBridge> bridge_;
  HandlerId handler_{};
  bool fenced_ = false;  // partitions belong to the transaction
  std::size_t message_ = 0;
  Pipeline::Mark message_mark_;           // where its statements begin
  std::optional<Failure> first_failure_;  // since the transaction was last sound
  std::optional<Failure> doom_;           // of an earlier message: no ROLLBACK TO undoes it
  bool marked_ = false;                   // it can be recognized, and so can its role
  bool marked_before_ = false;            // before the current message
  bool role_checked_ = false;             // since the last statement of a handler
  bool role_named_ = false;               // the current message may have changed the role
  bool guarded_ = false;                  // against a COMMIT of the handler
  bool enclosed_ = false;                 // a framework's savepoint encloses those of the current message
  bool savepoints_ = false;               // this transaction has had some
  bool ended_ = false;                    // by the handler, in this transaction
  std::optional<ConnectionLost> lost_;    // lost in this transaction
  std::size_t contended_batches_ = 0;     // that expect others to store the same ids
  std::optional<Link::Timeouts> to_own_;  // what the end of the transaction sets for the session
  bool touched_ = false;                  // a handler has sent a statement that may have changed the session
  bool prepared_ = false;                 // it may have prepared statements
  std::array<std::string, 4> plain_;      // statements that change no session, so that each is parsed once
  std::size_t next_plain_ = 0;
  /// What was announced: a transaction of one message.
  struct Next {
    ports::InboxScope scope;
    ports::InboxEntry entry;
    std::optional<std::chrono::steady_clock::time_point> sent{};  // with the end of the one before it
  };
  std::optional<Next> next_;
  std::vector<std::uint32_t> order_;  // the batch's distinct ids, as indices, sorted
  std::int32_t slot_ = 0;
  std::int64_t window_ = 0;
  std::map<MessageId, ports::Request> requests_;  // of the batch, if producers number them
};

}  // namespace turnstile::postgres
