#include "session.hpp"

#include <algorithm>
#include <cstring>

#include "decode.hpp"
#include "encode.hpp"
#include "entries.hpp"
#include "turnstile/error.hpp"
#include "turnstile/postgres/pqxx.hpp"

namespace turnstile::postgres {

namespace {

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

std::vector<Admission> Session::begin(const InboxScope& scope, std::span<const InboxEntry> entries) {
  rollback();
  sort_distinct(entries, order_);
  for (;;) {
    loan_ = shared_->handlers.take();
    const bool may_be_old = loan_->used;
    try {
      return admit(scope, entries);
    } catch (const ConnectionLost& lost) {
      close();
      if (!may_be_old) throw_lost(lost);
      // Lost while it lay idle, as after a restart of the server: nothing was done, so a new one may do it.
      shared_->handlers.close_idle();
    } catch (...) {
      rollback();
      throw;
    }
  }
}

void Session::send_entries(std::span<const InboxEntry> entries) {
  ArgumentBlock& to = loan_->pipeline.arguments();
  const auto at = [&](std::size_t i) -> const InboxEntry& { return entries[order_[i]]; };
  if (order_.size() == 1) {
    add_uuid(to, at(0).id);
    to.add_int(at(0).offset);
    if (at(0).fingerprint) to.add_int(*at(0).fingerprint);
    else to.add_null(0);
    return;
  }
  add_uuid_array(to, order_.size(), [&](std::size_t i) -> const MessageId& { return at(i).id; });
  add_int8_array(to, order_.size(), [&](std::size_t i) { return std::optional(at(i).offset); });
  add_int8_array(to, order_.size(), [&](std::size_t i) { return at(i).fingerprint; });
}

void Session::add_scope(const InboxScope& scope) {
  ArgumentBlock& to = loan_->pipeline.arguments();
  to.add_int(scope.lock_timeout.count());
  to.add_int(scope.idle_timeout.count());
  to.add_int(scope.handler.value);
  to.add_int(scope.fence ? scope.fence->slot : 0);
  add_epoch(to, scope.fence);
}

std::vector<Admission> Session::admit(const InboxScope& scope, std::span<const InboxEntry> entries) {
  const Statements& sql = shared_->statements;
  Pipeline& pipeline = loan_->pipeline;
  handler_ = scope.handler;
  message_ = 0;
  first_failure_.reset();
  requests_.clear();
  pipeline.next_transaction();
  pipeline.add(sql.begin, kCaller);
  if (scope.numbering != Numbering::ids && !entries.empty()) return admit_numbered(scope, entries);
  add_scope(scope);
  send_entries(entries);
  const Statements::Admit& admit = scope.fence ? sql.fenced : sql.free;
  pipeline.add(order_.size() == 1 ? admit.one : admit.many, kCaller, Pipeline::Keep::binary);
  const Answers answers = finish();

  const PGresult* rows = answers.kept.back().get();
  if (PQntuples(rows) == 0) throw_fenced(*scope.fence);
  std::vector<Admission> admissions(entries.size(), Admission::duplicate);
  auto expected = order_.begin();
  for (int row = 0; row < PQntuples(rows); ++row) {
    if (PQgetisnull(rows, row, 0)) continue;
    const MessageId id = id_in(rows, row);
    // They come back in the order in which they went, as a rule.
    if (expected == order_.end() || entries[*expected].id != id) {
      expected = std::lower_bound(order_.begin(), order_.end(), id, [&](std::uint32_t index, const MessageId& sought) {
        return entries[index].id < sought;
      });
    }
    admissions[*expected++] = Admission::fresh;
  }
  compare_fingerprints(scope.handler, entries, admissions);
  return admissions;
}

void Session::compare_fingerprints(HandlerId handler, std::span<const InboxEntry> entries,
                                   std::vector<Admission>& admissions) {
  std::vector<std::uint32_t> asked;
  for (std::uint32_t i = 0; i < entries.size(); ++i) {
    if (admissions[i] == Admission::duplicate && entries[i].fingerprint) asked.push_back(i);
  }
  if (asked.empty()) return;
  Pipeline& pipeline = loan_->pipeline;
  pipeline.arguments().add_int(handler.value);
  add_uuid_array(pipeline.arguments(), asked.size(),
                 [&](std::size_t i) -> const MessageId& { return entries[asked[i]].id; });
  pipeline.add(shared_->statements.fingerprints, kCaller, Pipeline::Keep::binary);
  const Answers answers = finish();

  const PGresult* rows = answers.kept.back().get();
  std::vector<std::pair<MessageId, std::int64_t>> stored;
  for (int row = 0; row < PQntuples(rows); ++row) stored.emplace_back(id_in(rows, row), int64_in(rows, row, 1));
  std::sort(stored.begin(), stored.end());
  for (const std::uint32_t i : asked) {
    const auto found = std::lower_bound(stored.begin(), stored.end(), entries[i].id,
                                        [](const auto& kept, const MessageId& id) { return kept.first < id; });
    const bool known = found != stored.end() && found->first == entries[i].id;
    if (known && found->second != *entries[i].fingerprint) admissions[i] = Admission::mismatch;
  }
}

/// For the session's own statements in begin(): nothing of a handler is under way.
Answers Session::finish() {
  Answers answers;
  loan_->pipeline.finish(answers);
  if (!answers.failure) return answers;
  if (answers.failure->stale_plan) throw StoreBusy(describe(answers.failure->error));
  throw_store_error(answers.failure->error, shared_->settings.schema, loan_->connection.user());
}

void Session::require_open(const char* what) const {
  if (!loan_)
    throw Error(std::string(what) + " outside of a transaction: it was committed, rolled back or lost before");
}

bool Session::aborted() const { return PQtransactionStatus(loan_->connection.raw()) == PQTRANS_INERROR; }

void Session::note(const Failure& failure) {
  if (!first_failure_) first_failure_ = failure;
}

void Session::throw_failure(const Failure& failure) {
  if (failure.stale_plan) throw StoreBusy(describe(failure.error));
  if (failure.owner == kCaller || classify(failure.error.sqlstate) != Kind::statement)
    throw_statement_error(failure.error);
  throw DeferredSqlError(describe(failure.error), failure.error.sqlstate, failure.owner);
}

void Session::throw_aborted() {
  if (!first_failure_)
    throw SqlError("the transaction is aborted by an error that was not reported (SQLSTATE 25P02)", "25P02");
  const Failure failure = *first_failure_;
  const bool to_blame =
      failure.owner == kCaller && !failure.stale_plan && classify(failure.error.sqlstate) == Kind::statement;
  if (!to_blame) throw_failure(failure);
  throw SqlError("a statement failed and the handler went on, which cannot be committed (SQLSTATE 25P02): " +
                     describe(failure.error),
                 "25P02");
}

Rows Session::run(std::string_view sql, std::span<const Param> params) {
  require_open("exec()");
  if (!aborted()) first_failure_.reset();
  loan_->pipeline.add(sql, params, kCaller, Pipeline::Keep::text);
  return rows_of(send_and_read().kept.back().get());
}

/// Sends what waits, and reads all answers; the last one is the caller's.
Answers Session::send_and_read() {
  Pipeline& pipeline = loan_->pipeline;
  Answers answers;
  try {
    pipeline.finish(answers);
  } catch (const ConnectionLost& lost) {
    close();
    if (answers.failure) throw_failure(*answers.failure);
    throw_lost(lost);
  }
  if (bridge_) pipeline.leave();
  if (answers.failure) {
    note(*answers.failure);
    throw_failure(*answers.failure);
  }
  if (PQtransactionStatus(loan_->connection.raw()) == PQTRANS_IDLE) {
    close();
    throw SqlError("a handler's statement ended the transaction of the batch (SQLSTATE 2D000)", "2D000");
  }
  return answers;
}

void Session::queue(std::string_view sql, std::span<const Param> params) {
  require_open("defer()");
  try {
    loan_->pipeline.add(sql, params, message_);
  } catch (const ConnectionLost& lost) {
    close();
    throw_lost(lost);
  }
}

void Session::commit() {
  require_open("commit()");
  if (aborted()) {
    try {
      throw_aborted();
    } catch (...) {
      rollback();
      throw;
    }
  }
  first_failure_.reset();
  Pipeline& pipeline = loan_->pipeline;
  Answers answers;
  bool asked = false;
  try {
    // A server that has hung up already certainly commits nothing.
    if (loan_->connection.hung_up()) loan_->connection.fail();
    pipeline.add("COMMIT", kCaller, Pipeline::Keep::text);
    asked = true;
    pipeline.finish(answers);
  } catch (const ConnectionLost& lost) {
    const bool sent = asked && pipeline.all_sent();
    close();
    if (answers.failure) throw_failure(*answers.failure);
    const std::string& state = lost.last_words.sqlstate;
    if (!sent || classify(state) == Kind::busy || is_overdue(state)) throw_lost(lost);
    throw CommitInDoubt("lost the connection to PostgreSQL between COMMIT and its answer: " +
                        describe(lost.last_words));
  }
  if (answers.failure) {
    rollback();
    throw_failure(*answers.failure);
  }
  // COMMIT of an aborted transaction succeeds and answers ROLLBACK.
  const bool committed = std::strcmp(PQcmdStatus(answers.kept.back().get()), "COMMIT") == 0;
  close();
  if (!committed) throw_aborted();
}

void Session::rollback() noexcept {
  if (!loan_) return;
  try {
    Pipeline& pipeline = loan_->pipeline;
    pipeline.drop_unsent();
    if (!loan_->connection.lost()) {
      Answers answers;
      if (PQtransactionStatus(loan_->connection.raw()) != PQTRANS_IDLE) pipeline.add("ROLLBACK", kCaller);
      pipeline.finish(answers);
    }
  } catch (...) {
    // The connection is lost, and with it the transaction. close() drops it.
  }
  close();
}

void Session::close() noexcept {
  if (bridge_) {
    bridge_.reset();
    loan_->connection.own_notices();
    loan_->pipeline.hold(false);
  }
  loan_.reset();
}

pqxx::transaction_base& Session::native() {
  require_open("native()");
  if (!aborted()) first_failure_.reset();
  Pipeline& pipeline = loan_->pipeline;
  Answers answers;
  try {
    pipeline.finish(answers);
  } catch (const ConnectionLost& lost) {
    close();
    throw_lost(lost);
  }
  if (answers.failure) {
    note(*answers.failure);
    throw_failure(*answers.failure);
  }
  pipeline.leave();
  pipeline.hold(true);
  if (!bridge_) bridge_ = std::make_unique<PqxxBridge>(loan_->connection.raw());
  return bridge_->transaction();
}

pqxx::transaction_base& native(Transaction& transaction) {
  auto* session = dynamic_cast<Session*>(&transaction);
  if (!session)
    throw Error("native(): this transaction is not PostgreSQL's; in tests with the memory twin use exec() and defer()");
  return session->native();
}

}  // namespace turnstile::postgres
