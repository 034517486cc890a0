#include "wire/errors.hpp"

#include "turnstile/error.hpp"
#include "wire/rights.hpp"

namespace turnstile::postgres {

namespace {

std::string field(const PGresult* result, int code) {
  const char* text = PQresultErrorField(result, code);
  return text ? text : "";
}

bool starts_with(std::string_view text, std::string_view prefix) { return text.substr(0, prefix.size()) == prefix; }

constexpr std::string_view kPooler =
    "; prepared statements do not survive on this connection; behind a pooler in transaction mode, set "
    "postgres.prepared_statements = false";

constexpr std::string_view kReadOnly =
    "; this server is a standby, or default_transaction_read_only is on (of the server, the database or the role). Name the primary in "
    "postgres.url, or list all hosts, separated by commas: Turnstile then uses the host that accepts writes";

}  // namespace

ServerError server_error(const PGresult* result) {
  ServerError error;
  error.sqlstate = field(result, PG_DIAG_SQLSTATE);
  error.message = field(result, PG_DIAG_MESSAGE_PRIMARY);
  if (error.message.empty()) {
    // libpq itself wrote it (a lost connection): one sentence, without a DETAIL.
    const char* text = PQresultErrorMessage(result);
    error.message = text ? text : "";
    while (!error.message.empty() && error.message.back() == '\n') error.message.pop_back();
  }
  error.schema = field(result, PG_DIAG_SCHEMA_NAME);
  error.table = field(result, PG_DIAG_TABLE_NAME);
  error.context = field(result, PG_DIAG_CONTEXT);
  const std::string severity = field(result, PG_DIAG_SEVERITY_NONLOCALIZED);
  error.fatal = severity == "FATAL" || severity == "PANIC";
  return error;
}

Kind classify(std::string_view state) {
  // Deadlock, serialization failure, lock timeout.
  for (const std::string_view busy : {"40P01", "40001", "55P03"}) {
    if (state == busy) return Kind::busy;
  }
  // No connection, operator intervention (except a cancelled query), out of resources, I/O. A standby, or a disk set
  // read-only. Prepared statements that a pooler has dropped or doubled.
  for (const std::string_view away : {"08", "57P0", "53", "58", "25006", "26000", "42P05"}) {
    if (starts_with(state, away)) return Kind::unavailable;
  }
  return Kind::statement;
}

bool is_overdue(std::string_view state) { return state == "25P03" || state == "25P04"; }

std::string describe(const ServerError& error) {
  if (error.sqlstate.empty()) return error.message;
  return error.message + " (SQLSTATE " + error.sqlstate + ")";
}

bool is_of_this_server(std::string_view state) { return state == "42501" || classify(state) == Kind::unavailable; }

void throw_handler_error(const ServerError& error) {
  if (classify(error.sqlstate) == Kind::busy) throw StoreBusy(describe(error));
  throw SqlError(describe(error), error.sqlstate);
}

void throw_pooler_error(const ServerError& error) {
  throw StoreUnavailable(Code::pooler_incompatible, "PostgreSQL: " + describe(error) + std::string(kPooler));
}

namespace {

/// Returns if only the statement or the schema can be the cause.
void throw_unless_statement(const ServerError& error, std::string_view schema, std::string_view user) {
  const std::string& state = error.sqlstate;
  if (state == "57014") throw StoreBusy(describe(error));
  if (state == "42501") {
    throw StoreUnavailable(Code::store_permission_denied,
                           "PostgreSQL denies a permission to the role " + std::string(user) + ": " + describe(error) +
                               "; as the owner of the schema run: " + grants(schema, user));
  }
  for (const std::string_view missing : {"42P01", "42703", "3F000", "42883"}) {
    if (state == missing) {
      throw StoreUnavailable(Code::schema_outdated, "the schema " + std::string(schema) +
                                                        " is not the version that this build needs: " +
                                                        describe(error) + "; run: turnstile migrate up");
    }
  }
  switch (classify(state)) {
    case Kind::busy: throw StoreBusy(describe(error));
    case Kind::unavailable:
      if (state == "26000" || state == "42P05") throw_pooler_error(error);
      if (state == "25006")
        throw StoreUnavailable(Code::store_read_only, "PostgreSQL: " + describe(error) + std::string(kReadOnly));
      throw StoreUnavailable("PostgreSQL: " + describe(error));
    case Kind::statement: break;
  }
}

}  // namespace

void throw_store_error(const ServerError& error, std::string_view schema, std::string_view user) {
  throw_unless_statement(error, schema, user);
  throw StoreFailed(
      "PostgreSQL rejects a statement of Turnstile's own on the schema " + std::string(schema) + ": " +
          describe(error) +
          "; look for a trigger or constraint that was added to the tables, and for a damaged index (REINDEX)",
      error.sqlstate);
}

void throw_operator_error(const ServerError& error, std::string_view schema, std::string_view user) {
  throw_unless_statement(error, schema, user);
  throw SqlError(describe(error), error.sqlstate);
}

void throw_needs_owner(const ServerError& error, std::string_view schema, std::string_view user) {
  throw StoreUnavailable(
      Code::store_permission_denied,
      "PostgreSQL denies a permission to the role " + std::string(user) + ": " + describe(error) +
          "; only the owner of the schema " + std::string(schema) +
          " may do this, or a member of pg_read_all_data if it only reads; connect as that role (postgres.url, or "
          "--postgres URL on the command line)");
}

void throw_lost(const ConnectionLost& lost) {
  const std::string& state = lost.last_words.sqlstate;
  if (classify(state) == Kind::busy) throw StoreBusy(describe(lost.last_words));
  if (is_overdue(state)) {
    throw SqlError(
        "PostgreSQL ended the transaction because the handler left it open for longer than handler_timeout: " +
            describe(lost.last_words),
        state);
  }
  throw StoreUnavailable("lost the connection to PostgreSQL: " + describe(lost.last_words));
}

bool is_commit_failure_of_server(std::string_view state) {
  // Out of resources, operator intervention (except a cancelled query), I/O, damage.
  for (const std::string_view theirs : {"53", "57P", "58", "XX"}) {
    if (starts_with(state, theirs)) return true;
  }
  return false;
}

void throw_fenced(const Fence& fence) {
  throw Fenced("slot " + std::to_string(fence.slot) + ": epoch " + std::to_string(fence.epoch.value) +
               " is over: another member owns the partition, or the database has changed (a restart, a failover)");
}

}  // namespace turnstile::postgres
