#include "inbox/session.hpp"

#include <algorithm>
#include <cstring>

#include "inbox/calls.hpp"
#include "turnstile/error.hpp"
#include "turnstile/ports/handler_sql.hpp"
#include "turnstile/postgres/pqxx.hpp"
#include "wire/decode.hpp"
#include "wire/encode.hpp"
#include "wire/entries.hpp"
#include "wire/rights.hpp"

namespace turnstile::postgres {

namespace {

/// Statements through libpqxx do not pass check_handler_sql(). A COMMIT there must not make the ids of the whole batch
/// permanent, so it has to fail. At COMMIT, PostgreSQL runs the query of a cursor WITH HOLD, and this query fails. It
/// does not run earlier, because concat() is not immutable.
/// The cursor is declared before the transaction's first savepoint, so that no ROLLBACK TO drops it. For CLOSE ALL,
/// which drops it, see Connection::watch().
constexpr std::string_view kRefuseCommit = R"(
DECLARE turnstile_transaction CURSOR WITH HOLD FOR
SELECT pg_catalog.concat('Turnstile commits the transaction of a handler: remove COMMIT from the handler')::integer)";
/// In the text of that error.
constexpr std::string_view kCommitIsOurs = "Turnstile commits the transaction of a handler";
/// In another transaction than the marked one it fails, so that the statements after it do not run.
constexpr std::string_view kSameTransaction =
    "SELECT coalesce(pg_catalog.current_setting('turnstile.transaction', true), '')::boolean";
/// The handler may have closed the cursor by its name.
constexpr std::string_view kAllowCommit = R"(
DO $$
DECLARE the_cursor refcursor := 'turnstile_transaction';
BEGIN CLOSE the_cursor; EXCEPTION WHEN invalid_cursor_name THEN NULL; END $$)";
/// Encloses the savepoints of a message. Its release removes all of them, so that no later message can roll back to one
/// of them. That would undo the work of other messages, whose ids stay.
constexpr std::string_view kEncloseSavepoints = "SAVEPOINT turnstile_message";
constexpr std::string_view kReleaseSavepoints = "RELEASE SAVEPOINT turnstile_message";

constexpr std::string_view kNoTransaction = "25P01";

/// These undo changes of a handler to the session, if it may have made some. For the server they are as much work as a
/// small transaction. They are sent after COMMIT and before its Sync. After that, a pooler in transaction mode may lend
/// the server's connection to another client. DISCARD ALL would also drop the framework's prepared statements.
constexpr std::string_view kResets[] = {
    "RESET SESSION AUTHORIZATION", "RESET ROLE", "RESET ALL", "CLOSE ALL", "UNLISTEN *", "DISCARD TEMP"};
/// The last reset. Behind a pooler, RESET ALL restores the settings of the pooler's connection; $1 are the settings of
/// this connection. Without a pooler, the session gets its lock_timeout again (Link::limit_lock_waits).
constexpr std::string_view kResetRest = R"(
SELECT pg_catalog.pg_advisory_unlock_all(),
       pg_catalog.count(pg_catalog.set_config(($1::text[])[i], ($1::text[])[i + 1], false)),
       CASE WHEN pg_catalog.pg_backend_pid() = $2::integer
            THEN pg_catalog.set_config('lock_timeout', $3::text, false) END
  FROM pg_catalog.generate_series(1, pg_catalog.cardinality($1::text[]), 2) AS i)";
/// Statements that a handler prepared. The excluded names are those of the framework and of PgBouncer.
constexpr std::string_view kDeallocate = R"(
DO $$
DECLARE the_name text;
BEGIN
  FOR the_name IN SELECT name FROM pg_catalog.pg_prepared_statements
                   WHERE name NOT LIKE 'turnstile\_%' AND name NOT LIKE 'PGBOUNCER\_%' LOOP
    EXECUTE pg_catalog.format('DEALLOCATE %I', the_name);
  END LOOP;
END $$)";

/// The tables of schema $1 with a trigger that can wait for COMMIT, and its function as an error's context names it.
constexpr std::string_view kDeferredTriggers = R"(
SELECT c.relname, pg_catalog.quote_ident(p.proname)
  FROM pg_catalog.pg_trigger t
  JOIN pg_catalog.pg_class c ON c.oid = t.tgrelid
  JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
  JOIN pg_catalog.pg_proc p ON p.oid = t.tgfoid
 WHERE n.nspname = $1::text AND t.tgdeferrable AND NOT t.tgisinternal)";

Rows rows_of(const PGresult* result) {
  const char* affected = PQcmdTuples(const_cast<PGresult*>(result));
  const int columns = PQnfields(result), count = PQntuples(result);
  Rows rows(static_cast<std::size_t>(columns), static_cast<std::size_t>(std::strtoull(affected, nullptr, 10)));
  for (int row = 0; row < count; ++row) {
    for (int column = 0; column < columns; ++column) {
      if (PQgetisnull(result, row, column)) rows.add(std::nullopt);
      else
        rows.add(std::string_view(PQgetvalue(result, row, column),
                                  static_cast<std::size_t>(PQgetlength(result, row, column))));
    }
  }
  return rows;
}

}  // namespace

/// For the session's own statements in begin(): no statement of a handler is in progress.
Answers Session::finish() {
  Answers answers;
  loan_->pipeline.finish(answers);
  if (answers.failure) throw_failure(*answers.failure);
  return answers;
}

void Session::require_open(const char* what) {
  if (ended_) throw_ended();
  if (lost_) throw_lost(*lost_);  // a handler has continued after the loss
  if (!loan_)
    throw Error(Code::api_misused,
                std::string(what) + " outside a transaction: it was committed, rolled back or lost before");
  if (loan_->connection.saw_close_all() && !loan_->connection.saw_commit()) {
    close();
    throw SqlError(
        "CLOSE ALL through libpqxx closes a cursor of Turnstile's own, so the transaction was rolled back; close your cursors by their "
        "names (SQLSTATE 2D000)",
        "2D000");
  }
  if (!bridge_ || PQtransactionStatus(loan_->connection.raw()) != PQTRANS_IDLE) return;
  if (!doom_) doom_ = refused_commit();
  if (doom_) throw_failure(*doom_);
  throw_ended();
}

/// A COMMIT through libpqxx that failed, as it should, has rolled back everything. If nothing was sent since, that is a
/// failure of the current message, even if its handler has ignored the error.
std::optional<Failure> Session::refused_commit() const {
  if (!bridge_ || PQtransactionStatus(loan_->connection.raw()) != PQTRANS_IDLE) return std::nullopt;
  const auto& seen = loan_->connection.seen_failure();
  if (!seen || seen->message.find(kCommitIsOurs) == std::string::npos) return std::nullopt;
  ServerError error = *seen;
  error.sqlstate = "2D000";
  return Failure{.error = std::move(error), .owner = message_, .author = Author::handler};
}

void Session::throw_ended() {
  ended_ = true;
  const bool committed = loan_ && loan_->connection.saw_commit();
  // Its state is unknown, and its queued statements belong to a transaction that is over.
  if (loan_) loan_->connection.condemn();
  close();
  if (committed) {
    throw TransactionEnded(
        "a handler committed the transaction that Turnstile had opened for its batch (COMMIT through libpqxx). The inbox now has the ids "
        "of the whole batch. Messages whose handlers had not run are therefore duplicates from now on. Remove the statement from the "
        "handler. Before the consumer starts again, run turnstile inbox forget ID for each message that had no effect");
  }
  throw TransactionEnded(
      "a handler ended the transaction that Turnstile had opened for its batch (COMMIT or ROLLBACK through libpqxx?). Its later "
      "statements may have taken effect without an id, and take effect again when the batch runs again. Remove the statement from the "
      "handler, and throw to have a message's work rolled back");
}

bool Session::aborted() const { return PQtransactionStatus(loan_->connection.raw()) == PQTRANS_INERROR; }

void Session::at_message(std::size_t index) {
  if (index != message_ && loan_) end_message();
  message_ = index;
  marked_before_ = marked_;
  if (loan_) message_mark_ = loan_->pipeline.mark();
}

void Session::end_message() {
  if (!doom_) doom_ = refused_commit();
  try {
    // It fails, and names the message, if the message has left the transaction aborted.
    if (enclosed_) loan_->pipeline.add(kReleaseSavepoints, message_, Pipeline::Keep::nothing, Author::handler);
    check_named_role();
  } catch (const ConnectionLost&) {
    // The next statement finds the loss again, and reports it.
  }
  enclosed_ = false;
}

/// What ran through libpqxx, and savepoints, cannot be taken back.
bool Session::undo_message() noexcept {
  if (!loan_ || lost_ || ended_ || doom_ || first_failure_ || bridge_ || enclosed_ || aborted()) return false;
  if (!loan_->pipeline.drop_since(message_mark_)) return false;
  marked_ = marked_before_;
  role_checked_ = false;
  return true;
}

void Session::guard_commit() {
  if (guarded_) return;
  mark_transaction();
  loan_->pipeline.add(kRefuseCommit, kCaller);
  guarded_ = true;
}

void Session::enclose_savepoints() {
  if (enclosed_) return;
  guard_commit();
  loan_->pipeline.add(kEncloseSavepoints, message_);
  enclosed_ = savepoints_ = true;
}

void Session::note(const Failure& failure) {
  if (!first_failure_) first_failure_ = failure;
  if (!doom_ && failure.owner != kCaller && failure.owner != message_) doom_ = failure;
}

void Session::throw_failure(const Failure& failure) {
  const ServerError& error = failure.error;
  if (failure.stale_plan) throw StoreBusy(describe(error));
  if (failure.owner == kIdentity && error.sqlstate == "22P02") throw_ended();
  if (failure.author == Author::check && error.sqlstate == "22P02") throw_role_changed(failure.owner);
  const bool ours = failure.author != Author::handler;
  if (failure.pooler || (ours && is_of_this_server(error.sqlstate))) {
    if (loan_) loan_->connection.condemn();
    shared_->handlers.renew();
  }
  if (failure.pooler) throw_pooler_error(error);
  if (watch_ && error.sqlstate == "55P03") throw StoreBusy(describe(error) + watch_->holders(Wanted::rows));
  if (ours && error.sqlstate == "25P02") throw_handler_error(error);  // a handler's statement had failed before
  if (ours) throw_store_error(error, shared_->settings.schema, loan_ ? loan_->connection.user() : "of postgres.url");
  if (failure.owner == kCaller || classify(error.sqlstate) == Kind::busy) throw_handler_error(error);
  throw DeferredSqlError(describe(error), error.sqlstate, failure.owner);
}

/// The first failure since the transaction was last sound. Failures through libpqxx are only observed.
std::optional<Failure> Session::why_aborted() const {
  if (first_failure_ || !loan_ || !loan_->connection.seen_failure()) return first_failure_;
  return Failure{.error = *loan_->connection.seen_failure(), .author = Author::handler};
}

void Session::throw_aborted() {
  const auto why = why_aborted();
  if (!why) throw SqlError("an error that Turnstile did not see aborted the transaction (SQLSTATE 25P02)", "25P02");
  const Failure& failure = *why;
  const bool to_blame = failure.owner == kCaller && failure.author == Author::handler && !failure.stale_plan &&
                        !failure.pooler && classify(failure.error.sqlstate) != Kind::busy;
  if (!to_blame) throw_failure(failure);
  throw SqlError(
      "a statement failed, but the handler continued, so its transaction cannot be committed (SQLSTATE 25P02): " +
          describe(failure.error),
      "25P02");
}

void Session::throw_commit_failure(const Failure& failure) {
  const ServerError& error = failure.error;
  if (classify(error.sqlstate) != Kind::busy &&
      (is_commit_failure_of_server(error.sqlstate) || is_of_own_table(error))) {
    throw_store_error(error, shared_->settings.schema, "of postgres.url");
  }
  throw_failure(failure);
}

/// A deferred constraint or trigger on one of Turnstile's tables was added by hand, and refuses every message. A
/// trigger's error names only its function.
bool Session::is_of_own_table(const ServerError& error) const {
  if (!error.table.empty()) return error.schema == shared_->settings.schema && is_own_table(error.table);
  if (error.context.empty()) return false;
  try {
    const auto rows = call(*shared_, [&](Pipeline& pipeline) {
      pipeline.arguments().add(Param(shared_->settings.schema));
      pipeline.add(kDeferredTriggers, kCaller, Pipeline::Keep::text);
    });
    const PGresult* triggers = rows.back().get();
    for (int row = 0; row < PQntuples(triggers); ++row) {
      if (is_own_table(PQgetvalue(triggers, row, 0)) &&
          error.context.find(std::string(PQgetvalue(triggers, row, 1)) + "(") != std::string::npos)
        return true;
    }
  } catch (const Error&) {
    // The cause is unknown: the message is retried, as its policy tells.
  }
  return false;
}

Rows Session::run(std::string_view sql, std::span<const Param> params) {
  require_open("exec()");
  ports::check_handler_sql(sql);
  if (!aborted()) first_failure_.reset();
  if (ports::makes_savepoint(sql)) with_connection([&] { enclose_savepoints(); });
  note_statement(sql);
  loan_->pipeline.add(sql, params, kCaller, Pipeline::Keep::text, Author::handler);
  return rows_of(send_and_read().kept.back().get());
}

/// Sends the queued statements and reads all results. The last one is the caller's.
Answers Session::send_and_read() {
  if (doom_) throw_failure(*doom_);
  Pipeline& pipeline = loan_->pipeline;
  Answers answers;
  with_connection([&] { pipeline.finish(answers); }, answers);
  if (bridge_) pipeline.leave();
  if (answers.failure) {
    note(*answers.failure);
    throw_failure(*answers.failure);
  }
  if (PQtransactionStatus(loan_->connection.raw()) == PQTRANS_IDLE) throw_ended();
  return answers;
}

void Session::queue(std::string_view sql, std::span<const Param> params) {
  require_open("defer()");
  ports::check_handler_sql(sql);
  with_connection([&] {
    if (ports::makes_savepoint(sql)) enclose_savepoints();
    note_statement(sql);
    loan_->pipeline.add(sql, params, message_, Pipeline::Keep::nothing, Author::handler);
  });
}

void Session::note_statement(std::string_view sql) {
  role_checked_ = false;
  if (std::find(plain_.begin(), plain_.end(), sql) != plain_.end()) return;
  if (!ports::may_change_session(sql)) {
    plain_[next_plain_++ % plain_.size()] = sql;
    return;
  }
  mark_transaction();
  touched_ = true;
  prepared_ = prepared_ || ports::makes_prepared(sql);
  role_named_ = role_named_ || ports::names_role(sql);
}

void Session::add_reset() {
  if (!touched_) return;
  to_own_.reset();
  loan_->timeouts.reset();
  Pipeline& pipeline = loan_->pipeline;
  for (const std::string_view sql : kResets) pipeline.add(sql, kReset);
  if (prepared_) pipeline.add(kDeallocate, kReset);
  ArgumentBlock& to = pipeline.arguments();
  to.add(Param(loan_->connection.client_settings()));
  to.add_int(PQbackendPID(loan_->connection.raw()));
  to.add_int(shared_->settings.lock_timeout.count());
  pipeline.add(kResetRest, kReset, Pipeline::Keep::text);
}

/// An error in one of the statements keeps the last of them from running.
bool Session::is_reset(const Answers& answers) const {
  return !touched_ || (!answers.kept.empty() && PQresultStatus(answers.kept.back().get()) == PGRES_TUPLES_OK);
}

void Session::commit() {
  require_open("commit()");
  if (doom_ || aborted()) {
    try {
      if (doom_) throw_failure(*doom_);
      throw_aborted();
    } catch (...) {
      abandon();
      throw;
    }
  }
  first_failure_.reset();
  Pipeline& pipeline = loan_->pipeline;
  Answers answers;
  bool asked = false, chains = false;
  // COMMIT of an aborted transaction succeeds and returns ROLLBACK.
  const auto is_committed = [&] {
    return !answers.kept.empty() && std::strcmp(PQcmdStatus(answers.kept.front().get()), "COMMIT") == 0;
  };
  try {
    // A server that has closed the connection already certainly commits nothing.
    if (loan_->connection.hung_up()) loan_->connection.fail();
    // If a failure has not been read yet, a ROLLBACK TO after it would let a later COMMIT succeed.
    if (savepoints_) pipeline.finish(answers);
    if (answers.failure) {
      const Failure failure = *answers.failure;
      abandon();
      throw_failure(failure);
    }
    if (bridge_) loan_->connection.own_notices();
    check_named_role();
    if (guarded_) {
      pipeline.add(kSameTransaction, kIdentity);
      pipeline.add(kAllowCommit, kIdentity);
    }
    static_cast<void>(loan_->connection.ended_nothing());  // only the answer to COMMIT counts
    static_cast<void>(loan_->connection.unreplicated());
    // If COMMIT is refused (a deferred constraint), the handlers' statements are the reason.
    chains = may_chain();
    pipeline.add(chains ? "COMMIT AND CHAIN" : "COMMIT", kCaller, Pipeline::Keep::text, Author::handler);
    add_reset();
    add_own_timeouts();
    const std::size_t own = pipeline.unread();
    if (chains) add_next();
    asked = true;
    if (chains) pipeline.finish_first(own, answers);
    else pipeline.finish(answers);
  } catch (const ConnectionLost& lost) {
    const bool sent = asked && pipeline.all_sent();
    const bool committed = is_committed() && !loan_->connection.ended_nothing();
    lose(lost);
    if (committed) return;  // it was lost with the answers after COMMIT
    if (answers.failure) throw_failure(*answers.failure);
    const std::string& state = lost.last_words.sqlstate;
    if (!sent || classify(state) == Kind::busy || is_overdue(state)) throw_lost(lost);
    throw CommitInDoubt("lost the connection to PostgreSQL between COMMIT and its answer: " +
                        describe(lost.last_words));
  }
  // After the COMMIT succeeded, only what follows it can have failed.
  if (answers.failure && answers.failure->owner != kReset && !is_committed()) {
    const Failure failure = *answers.failure;
    // No other statement here has both this owner and this author.
    if (failure.owner == kCaller && failure.author == Author::handler) {
      // Only COMMIT AND CHAIN fails if no transaction is open. A trigger that raises the same error has a context.
      if (chains && failure.error.sqlstate == kNoTransaction && failure.error.context.empty()) throw_ended();
      abandon();
      throw_commit_failure(failure);
    }
    try {
      throw_failure(failure);
    } catch (...) {
      abandon();
      throw;
    }
  }
  if (loan_->connection.ended_nothing()) throw_ended();
  if (!is_reset(answers)) loan_->connection.condemn();
  note_own_timeouts(answers);
  const bool unreplicated = loan_->connection.unreplicated();
  if (is_sent() && is_committed() && !unreplicated) return;
  if (is_sent()) abandon();
  else close();
  if (!is_committed()) throw_aborted();
  if (unreplicated) throw CommitInDoubt("the COMMIT's wait for the synchronous replicas of PostgreSQL was cancelled");
}

void Session::abandon() noexcept {
  next_.reset();
  if (!loan_) return;
  try {
    Pipeline& pipeline = loan_->pipeline;
    pipeline.drop_unsent();
    if (!loan_->connection.lost()) {
      Answers answers;
      const bool is_open = PQtransactionStatus(loan_->connection.raw()) != PQTRANS_IDLE;
      if (is_open || pipeline.unread() > 0) pipeline.add("ROLLBACK", kCaller);
      add_reset();
      pipeline.finish(answers);
      if (!is_reset(answers)) loan_->connection.condemn();
    }
  } catch (...) {
    // The connection is lost, and its transaction with it. close() drops it.
  }
  close();
}

ports::Standing Session::standing() noexcept {
  if (lost_) return is_overdue(lost_->last_words.sqlstate) ? ports::Standing::failed : ports::Standing::lost;
  if (loan_) {
    const bool is_seen = PQstatus(loan_->connection.raw()) != CONNECTION_OK;  // by a statement of libpqxx
    const bool is_lost = is_seen || loan_->connection.hung_up();
    // The server ends a transaction that its handler has left open for too long: that is no outage.
    if (is_lost && is_overdue(loan_->connection.last_words().sqlstate)) return ports::Standing::failed;
    if (is_lost) return is_seen ? ports::Standing::lost : ports::Standing::lost_unseen;
  }
  if (ended_ || !loan_ || doom_) return ports::Standing::failed;
  if (!aborted()) return ports::Standing::sound;
  const auto why = why_aborted();
  return why && classify(why->error.sqlstate) == Kind::busy ? ports::Standing::busy : ports::Standing::failed;
}

void Session::lose(const ConnectionLost& lost) noexcept {
  close();
  lost_ = lost;
}

void Session::close() noexcept {
  next_.reset();
  watch_.reset();
  if (bridge_) {
    bridge_.reset();
    loan_->connection.own_notices();
    loan_->pipeline.hold(false);
  }
  loan_.reset();
}

pqxx::transaction_base& Session::native() {
  require_open("native()");
  if (doom_) throw_failure(*doom_);
  if (!aborted()) first_failure_.reset();
  with_connection([&] { enclose_savepoints(); });  // libpqxx may make some
  send_and_read();
  touched_ = prepared_ = role_named_ = true;
  loan_->pipeline.leave();
  loan_->pipeline.hold(true);
  loan_->connection.watch();
  if (!bridge_) bridge_ = std::make_unique<PqxxBridge>(loan_->connection.raw());
  return bridge_->transaction();
}

pqxx::transaction_base& native(Transaction& transaction) {
  auto* session = dynamic_cast<Session*>(&transaction);
  if (!session)
    throw Error(Code::api_misused,
                "native(): this transaction is not PostgreSQL's; in tests with the memory twin use exec() and defer()");
  return session->native();
}

}  // namespace turnstile::postgres
