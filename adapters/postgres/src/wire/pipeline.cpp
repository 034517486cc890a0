#include "wire/pipeline.hpp"

#include <algorithm>
#include <cstring>

#include "turnstile/error.hpp"
#include "turnstile/ports/param_text.hpp"

namespace turnstile::postgres {

namespace {

/// A quarter of the smallest default socket buffer that Linux grows to at once. It is also the size in which libpq
/// writes.
constexpr std::size_t kChunkBytes = std::size_t{32} << 10;
/// The most prepared statements of a connection. Handlers have a few; a handler that builds its SQL from values would
/// fill the server.
constexpr std::size_t kMostPrepared = 256;
/// PostgreSQL's protocol counts arguments in 16 bits.
constexpr std::size_t kMostArguments = 65'535;

}  // namespace

void Pipeline::add(std::string_view sql, std::span<const Param> params, Owner owner, Keep keep, Author author) {
  if (params.size() > kMostArguments) {
    throw SqlError(
        "a statement has " + std::to_string(params.size()) +
            " arguments, but PostgreSQL accepts at most 65,535; pass arrays and unnest() them (SQLSTATE 54023)",
        "54023");
  }
  const auto mark = ArgumentBlock::Mark{queued_arguments_};
  try {
    ports::each_param(params, [&](const Param& param) { arguments_.add(param); });
  } catch (...) {
    arguments_.forget(mark);
    throw;
  }
  add(sql, owner, keep, author);
}

void Pipeline::add(std::string_view sql, Owner owner, Keep keep, Author author) {
  Unsent statement;
  statement.first_argument = queued_arguments_;
  statement.arguments = arguments_.size() - queued_arguments_;
  statement.owner = owner;
  statement.keep = keep;
  statement.author = author;
  statement.transaction = transaction_;
  statement.prepared = find_prepared(sql, {queued_arguments_});
  statement.sql = sql_.size();
  if (!statement.prepared || statement.prepared->state == Prepared::State::unknown) sql_.append(sql).push_back('\0');
  queued_arguments_ = arguments_.size();
  unsent_.push_back(statement);
  // finish() follows all others at once.
  if (is_message(owner) && !held_ && arguments_.bytes() + sql_.size() + 32 * unsent_.size() >= kChunkBytes)
    send_chunk();
}

Pipeline::Prepared* Pipeline::find_prepared(std::string_view sql, ArgumentBlock::Mark from) {
  if (!prepare_) return nullptr;
  key_.assign(sql);
  key_ += '\0';
  arguments_.signature(from, key_);
  if (const auto found = prepared_.find(key_); found != prepared_.end()) return &found->second;
  if (prepared_.size() >= kMostPrepared) {
    reset_prepared_ = true;  // from the next transaction on; in this one the statement is parsed
    return nullptr;
  }
  auto& prepared = prepared_[key_];
  prepared.name = "turnstile_" + std::to_string(++names_);
  return &prepared;
}

void Pipeline::next_transaction() {
  ++transaction_;
  // Statements of the transaction before it, which are sent or read later, refer to them.
  if (!reset_prepared_ || !unsent_.empty() || !awaited_.empty()) return;
  reset_prepared_ = false;
  prepared_.clear();
  Unsent all;
  all.sql = sql_.size();
  all.first_argument = queued_arguments_;
  sql_.append("DEALLOCATE ALL").push_back('\0');
  unsent_.push_back(all);
}

void Pipeline::sent_or_fail(int ok) {
  if (ok == 0) connection_.fail();
}

void Pipeline::send(const Unsent& statement) {
  PGconn* connection = connection_.raw();
  const auto arguments = arguments_.view(statement.first_argument, statement.arguments);
  const char* sql = sql_.data() + statement.sql;
  const int format = statement.keep == Keep::binary ? 1 : 0;
  Prepared* prepared = statement.prepared;
  if (!prepared) {
    sent_or_fail(PQsendQueryParams(connection, sql, arguments.count, arguments.types, arguments.values,
                                   arguments.lengths, arguments.formats, format));
  } else {
    if (prepared->state == Prepared::State::unknown) {
      sent_or_fail(PQsendPrepare(connection, prepared->name.c_str(), sql, arguments.count, arguments.types));
      prepared->state = Prepared::State::sent;
      prepared->transaction = statement.transaction;
      awaited_.push_back(
          {Awaited::Kind::parse, false, statement.author, statement.owner, prepared, statement.transaction});
    }
    sent_or_fail(PQsendQueryPrepared(connection, prepared->name.c_str(), arguments.count, arguments.values,
                                     arguments.lengths, arguments.formats, format));
  }
  awaited_.push_back({Awaited::Kind::run, statement.keep != Keep::nothing, statement.author, statement.owner, prepared,
                      statement.transaction});
}

void Pipeline::send_chunk() {
  if (unsent_.empty()) return;
  PGconn* connection = connection_.raw();
  if (PQpipelineStatus(connection) == PQ_PIPELINE_OFF) {
    if (PQsetnonblocking(connection, 1) != 0) connection_.fail();
    sent_or_fail(PQenterPipelineMode(connection));
  }
  ++chunks_;
  for (const Unsent& statement : unsent_) send(statement);
  const Owner owner = unsent_.back().owner;
  const Author author = unsent_.back().author;
  drop_unsent();
  sent_or_fail(PQpipelineSync(connection));
  awaited_.push_back({Awaited::Kind::sync, false, author, owner, nullptr, transaction_});
}

bool Pipeline::drop_since(const Mark& mark) noexcept {
  if (mark.sent != chunks_) return false;
  unsent_.erase(unsent_.begin() + static_cast<std::ptrdiff_t>(mark.statements), unsent_.end());
  sql_.erase(mark.sql);
  arguments_.forget({mark.arguments});
  queued_arguments_ = mark.arguments;
  return true;
}

void Pipeline::drop_unsent() noexcept {
  unsent_.clear();
  sql_.clear();
  arguments_.clear();
  queued_arguments_ = 0;
}

std::size_t Pipeline::unread() const noexcept {
  const auto runs = std::count_if(awaited_.begin(), awaited_.end(),
                                  [](const Awaited& awaited) { return awaited.kind == Awaited::Kind::run; });
  return static_cast<std::size_t>(runs) + unsent_.size();
}

void Pipeline::finish(Answers& answers) {
  send_chunk();
  while (!awaited_.empty()) {
    read(awaited_.front(), answers);
    awaited_.pop_front();
  }
}

void Pipeline::finish_first(std::size_t statements, Answers& answers) {
  send_chunk();
  while (statements > 0) {
    if (awaited_.front().kind == Awaited::Kind::run) --statements;
    read(awaited_.front(), answers);
    awaited_.pop_front();
  }
}

void Pipeline::read(const Awaited& awaited, Answers& answers) {
  Result result = connection_.next_result();
  if (!result) connection_.fail();
  const auto status = PQresultStatus(result.get());
  if (awaited.kind == Awaited::Kind::sync) return read_sync(awaited, std::move(result), answers);
  const bool failed = status == PGRES_FATAL_ERROR || status == PGRES_PIPELINE_ABORTED;
  if (awaited.kind == Awaited::Kind::parse) {
    awaited.prepared->state = failed ? Prepared::State::unknown : Prepared::State::ready;
  }
  if (status == PGRES_FATAL_ERROR) note_failure(awaited, result.get(), answers);
  if (status == PGRES_COPY_IN || status == PGRES_COPY_OUT || status == PGRES_COPY_BOTH) {
    // The protocol cannot continue from here.
    answers.failure = Failure{
        .error = {"0A000", "COPY works neither through exec() nor defer(); use turnstile::postgres::native()", true},
        .owner = awaited.owner,
        .author = awaited.author};
    connection_.fail();
  }
  if (awaited.keep) answers.kept.push_back(std::move(result));
  // Reads the null that ends a statement's results. A handler's statement can have only one result.
  while (connection_.next_result()) {
  }
}

/// Statements outside a transaction are committed at the Sync, which can fail (a deferred trigger). The server can also
/// end a statement after its answer (statement_timeout, pg_cancel_backend). Both are failures of the last statement.
/// Settings of the session that were made since the Sync before are undone with it.
void Pipeline::read_sync(const Awaited& awaited, Result result, Answers& answers) {
  if (PQresultStatus(result.get()) == PGRES_FATAL_ERROR) {
    note_failure(awaited, result.get(), answers);
    connection_.condemn();
    connection_.next_result();  // the null that ends the error
    result = connection_.next_result();
  }
  if (PQresultStatus(result.get()) != PGRES_PIPELINE_SYNC) connection_.fail();
}

void Pipeline::note_failure(const Awaited& awaited, const PGresult* result, Answers& answers) {
  if (answers.failure) return;
  Failure failure{.error = server_error(result), .owner = awaited.owner, .author = awaited.author};
  const bool prepared_before = awaited.prepared && awaited.prepared->transaction < awaited.transaction;
  // "cached plan must not change result type", after a table was changed: it may succeed if it is prepared again.
  failure.stale_plan = prepared_before && failure.error.sqlstate == "0A000";
  // Within a transaction a pooler does not change the server. A statement that was prepared in it exists, unless its
  // name was taken.
  failure.pooler = (prepared_before && failure.error.sqlstate == "26000") ||
                   (awaited.kind == Awaited::Kind::parse && failure.error.sqlstate == "42P05");
  if (failure.stale_plan) forget_prepared();
  answers.failure = std::move(failure);
}

void Pipeline::leave() noexcept {
  PQexitPipelineMode(connection_.raw());
  PQsetnonblocking(connection_.raw(), 0);
}

}  // namespace turnstile::postgres
