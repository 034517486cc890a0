// Runs migrations, and compares those that were run with those that are known.

#include "turnstile/postgres/migrations.hpp"

#include <algorithm>
#include <chrono>
#include <map>

#include "migrations/schema.hpp"
#include "turnstile/error.hpp"
#include "wire/identifier.hpp"
#include "wire/locks.hpp"

namespace turnstile::postgres {

namespace {

struct LedgerRow {
  int number = 0;
  std::string name;
  std::optional<std::string> checksum;  ///< absent: psql ran the file
  std::string applied_at;
  std::string applied_by;
  int builds_from = 0;  ///< 0: of the ledger `migration`, where each row needs a build that knows it
};

bool ok(const Result& result) {
  const auto status = PQresultStatus(result.get());
  return status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK;
}

bool is_locked_out(const ServerError& error) { return error.sqlstate == "55P03"; }

struct Answer {
  Result result;
  std::string holders{};  ///< after a lock timeout: the sessions that hold the lock
};

/// Runs plain statements, one after another, outside of the pipeline. Returns the result of the last, or of the first
/// that failed. Throws ConnectionLost.
Answer query(Connection& connection, LockWatch& watch, const std::string& sql, Wanted wanted) {
  if (PQsendQuery(connection.raw(), sql.c_str()) == 0) connection.fail();
  Answer last;
  while (Result result = connection.next_result()) {
    if (!last.result || ok(last.result)) last.result = std::move(result);
  }
  if (!ok(last.result) && is_locked_out(server_error(last.result.get()))) last.holders = watch.holders(wanted);
  return last;
}

Answer query(Connection& connection, const PostgresSettings& settings, const std::string& sql, Wanted wanted) {
  LockWatch watch(settings, connection, settings.lock_timeout);
  return query(connection, watch, sql, wanted);
}

[[noreturn]] void refuse(Connection& connection, const PostgresSettings& settings, const Answer& answer,
                         Wanted wanted = Wanted::rows) {
  const ServerError error = server_error(answer.result.get());
  if (is_locked_out(error)) throw StoreBusy(describe(error) + answer.holders);
  // throw_operator_error() names a consumer's GRANT statements, and a consumer changes no table.
  if (wanted == Wanted::tables && error.sqlstate == "42501")
    throw_needs_owner(error, settings.schema, connection.user());
  throw_operator_error(error, settings.schema, connection.user());
}

Result must(Connection& connection, const PostgresSettings& settings, const std::string& sql,
            Wanted wanted = Wanted::tables) {
  Answer answer = query(connection, settings, sql, wanted);
  if (!ok(answer.result)) refuse(connection, settings, answer, wanted);
  return std::move(answer.result);
}

std::string lock_timeout(const PostgresSettings& settings) {
  return "SELECT pg_catalog.set_config('lock_timeout', '" + std::to_string(settings.lock_timeout.count()) + "', true)";
}

std::string quote_text(Connection& connection, const std::string& text) {
  char* quoted = PQescapeLiteral(connection.raw(), text.data(), text.size());
  if (!quoted) throw Error(Code::unexpected, "cannot quote a text for PostgreSQL");
  std::string copy = quoted;
  PQfreemem(quoted);
  return copy;
}

/// The ledger that the row of a migration is in. Earlier builds read only `migration`, and do not start if it has a row
/// that they do not know.
const char* ledger_of(const Migration& migration) {
  return migration.builds_from < migration.number ? "compatible_migration" : "migration";
}

bool has_table(Connection& connection, const PostgresSettings& settings, const std::string& quoted_schema,
               const std::string& table) {
  const auto found =
      must(connection, settings,
           "SELECT 1 FROM pg_catalog.pg_tables WHERE tablename = '" + table + "' AND schemaname = " + quoted_schema,
           Wanted::rows);
  return PQntuples(found.get()) > 0;
}

/// Adds the rows of one ledger. Returns false if it does not exist.
bool read_rows(Connection& connection, const PostgresSettings& settings, const std::string& table,
               const std::string& builds_from, Wanted wanted, std::vector<LedgerRow>& rows) {
  // In one message they are one transaction, also behind a pooler.
  const Answer answer =
      query(connection, settings,
            lock_timeout(settings) + "; SELECT number, name, checksum, applied_at, applied_by, " + builds_from +
                " FROM " + quote_identifier(settings.schema) + "." + table + " ORDER BY number",
            wanted);
  const Result& result = answer.result;
  if (!ok(result)) {
    const ServerError error = server_error(result.get());
    if (error.sqlstate == "42P01" || error.sqlstate == "3F000") return false;
    refuse(connection, settings, answer, wanted);
  }
  for (int row = 0; row < PQntuples(result.get()); ++row) {
    const auto cell = [&](int column) { return std::string(PQgetvalue(result.get(), row, column)); };
    LedgerRow& added =
        rows.emplace_back(LedgerRow{std::stoi(cell(0)), cell(1), std::nullopt, cell(3), cell(4), std::stoi(cell(5))});
    if (!PQgetisnull(result.get(), row, 2)) added.checksum = cell(2);
  }
  return true;
}

/// The rows of both ledgers. Absent if there is no ledger.
std::optional<std::vector<LedgerRow>> read_ledger(Connection& connection, const PostgresSettings& settings,
                                                  Wanted wanted = Wanted::rows) {
  std::vector<LedgerRow> rows;
  if (!read_rows(connection, settings, "migration", "0", wanted, rows)) return std::nullopt;
  // A missing table would abort the transaction of a migration, so check before reading.
  if (has_table(connection, settings, quote_text(connection, settings.schema), "compatible_migration"))
    read_rows(connection, settings, "compatible_migration", "builds_from", wanted, rows);
  return rows;
}

std::vector<MigrationState> compare(const std::vector<LedgerRow>& ledger, const std::vector<Migration>& known) {
  std::map<int, MigrationState> states;
  for (const Migration& migration : known) {
    states[migration.number] = {migration.number, migration.name, MigrationState::Kind::pending, "", ""};
  }
  for (const LedgerRow& row : ledger) {
    const auto found = std::find_if(known.begin(), known.end(), [&](const auto& m) { return m.number == row.number; });
    auto kind = MigrationState::Kind::applied;
    if (found == known.end())
      kind = row.builds_from > 0 && !known.empty() && row.builds_from <= known.back().number
                 ? MigrationState::Kind::newer
                 : MigrationState::Kind::unknown;
    else if (found->name != row.name || (row.checksum && *row.checksum != found->checksum))
      kind = MigrationState::Kind::changed;
    states[row.number] = {row.number, row.name, kind, row.applied_at, row.applied_by};
  }
  std::vector<MigrationState> ordered;
  for (auto& [number, state] : states) ordered.push_back(std::move(state));
  return ordered;
}

std::string file_name(const std::vector<Migration>& known, const MigrationState& state) {
  const auto found = std::find_if(known.begin(), known.end(), [&](const auto& m) { return m.number == state.number; });
  return found == known.end() ? std::to_string(state.number) + "_" + state.name : found->up_file;
}

[[noreturn]] void refuse_newer(const MigrationState& state, const std::vector<Migration>& known,
                               const std::string& schema) {
  throw SchemaError(Code::schema_newer, "the schema " + schema + " is newer than this build: it has migration " +
                                            std::to_string(state.number) + " (" + state.name +
                                            "), but this build knows only " + std::to_string(known.size()) +
                                            "; install the newer build, or with the newer build run: turnstile "
                                            "migrate down");
}

/// Throws if the database has migrations that prevent any further one.
void refuse_strange(const std::vector<MigrationState>& states, const std::vector<Migration>& known,
                    const std::string& schema) {
  for (const MigrationState& state : states) {
    if (state.kind == MigrationState::Kind::changed) {
      throw SchemaError(Code::migration_changed,
                        file_name(known, state) + ": was changed after it ran on the schema " + schema + " (" +
                            state.applied_at + ", by " + state.applied_by +
                            "); restore the old text, and put the change into a new migration");
    }
    if (state.kind == MigrationState::Kind::unknown) refuse_newer(state, known, schema);
  }
}

std::size_t line_of(const std::string& text, const PGresult* result) {
  const char* position = PQresultErrorField(result, PG_DIAG_STATEMENT_POSITION);
  if (!position) return 0;
  const auto end =
      text.begin() + std::min<std::ptrdiff_t>(std::atoll(position), static_cast<std::ptrdiff_t>(text.size()));
  return 1 + static_cast<std::size_t>(std::count(text.begin(), end, '\n'));
}

/// What blocks a migration, and PostgreSQL's hint. It leaves out the DETAIL of errors in data, which contains rows
/// (hazard: error-detail).
std::string detail_and_hint(const ServerError& error, const PGresult* result) {
  std::string text;
  const auto add = [&](const char* what, int field) {
    const char* value = PQresultErrorField(result, field);
    if (!value) return;
    text += std::string(". PostgreSQL's ") + what + ": ";
    for (const char* c = value; *c != '\0'; ++c) text += *c == '\n' ? std::string("; ") : std::string(1, *c);
    if (text.ends_with('.')) text.pop_back();
  };
  if (!error.sqlstate.starts_with("22") && !error.sqlstate.starts_with("23")) add("detail", PG_DIAG_MESSAGE_DETAIL);
  add("hint", PG_DIAG_MESSAGE_HINT);
  return text;
}

void run_file(Connection& connection, const PostgresSettings& settings, const std::string& file,
              const std::string& text) {
  const Answer answer = query(connection, settings, text, Wanted::tables);
  const Result& result = answer.result;
  if (ok(result) || PQresultStatus(result.get()) == PGRES_EMPTY_QUERY) return;
  const ServerError error = server_error(result.get());
  const std::size_t line = line_of(text, result.get());
  if (is_locked_out(error)) {
    throw StoreBusy(file + ": " + describe(error) + answer.holders + ". Nothing was changed. To wait longer than " +
                    std::to_string(settings.lock_timeout.count()) + " ms, raise postgres.lock_timeout");
  }
  const Code code = error.sqlstate == "42501" ? Code::store_permission_denied : Code::migration_failed;
  throw SchemaError(
      code, file + (line == 0 ? "" : ":" + std::to_string(line)) + ": " + describe(error) + "; nothing was changed" +
                (error.sqlstate == "42501" ? "; the role " + connection.user() + " must own the schema" : "") +
                detail_and_hint(error, result.get()));
}

/// Tells at this pace, or less often, that it waits for another migration.
constexpr std::chrono::milliseconds kTellOften{1'000};

/// Waits without a limit: a migration of a large table takes as long as it takes.
void wait_for_others(Connection& connection, const PostgresSettings& settings, const std::string& schema,
                     const OnWait& on_wait) {
  LockWatch watch(settings, connection, settings.lock_timeout);
  if (on_wait) {
    watch.tell(std::max(settings.lock_timeout, kTellOften), [&](const std::string& holders) {
      on_wait("another session holds the lock of the migrations of schema " + settings.schema +
              "; waiting until it ends: " + holders);
    });
  }
  const Answer answer = query(
      connection, watch, "SELECT pg_advisory_xact_lock(hashtextextended('turnstile migrations ' || " + schema + ", 0))",
      Wanted::tables);
  if (!ok(answer.result)) refuse(connection, settings, answer, Wanted::tables);
}

/// Runs `work` in a transaction, as the only migration of this schema. Its tables are found by their plain names.
template <class Work>
auto exclusively(const PostgresSettings& settings, const OnWait& on_wait, Work work) {
  check_settings(settings);
  Connection connection(settings);
  try {
    const std::string schema = quote_text(connection, settings.schema);
    must(connection, settings, "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE");
    wait_for_others(connection, settings, schema, on_wait);
    must(connection, settings, "SET LOCAL search_path = " + quote_identifier(settings.schema));
    // While a change of a table waits for its lock, all users of the table wait behind it.
    must(connection, settings, lock_timeout(settings));
    auto done = work(connection, schema);
    must(connection, settings, "COMMIT");
    return done;
  } catch (const ConnectionLost& lost) {
    throw_lost(lost);
  }
}

void create_schema(Connection& connection, const PostgresSettings& settings, const std::string& quoted_text) {
  const auto found = must(connection, settings, "SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = " + quoted_text);
  if (PQntuples(found.get()) > 0) return;
  const Answer made = query(connection, settings, "CREATE SCHEMA " + quote_identifier(settings.schema), Wanted::tables);
  if (ok(made.result)) return;
  const ServerError error = server_error(made.result.get());
  if (error.sqlstate != "42501") throw_operator_error(error, settings.schema, connection.user());
  throw SchemaError(Code::store_permission_denied, "the role " + connection.user() + " may not create the schema " +
                                                       settings.schema + ": " + describe(error) +
                                                       "; as the owner of the database run: CREATE SCHEMA " +
                                                       quote_identifier(settings.schema) + " AUTHORIZATION " +
                                                       quote_identifier(connection.user()) + ";");
}

void write_checksum(Connection& connection, const PostgresSettings& settings, const Migration& migration) {
  const bool compatible = migration.builds_from < migration.number;
  must(connection, settings,
       std::string("INSERT INTO ") + ledger_of(migration) + " (number, name, checksum" +
           (compatible ? ", builds_from" : "") + ") VALUES (" + std::to_string(migration.number) + ", " +
           quote_text(connection, migration.name) + ", " + quote_text(connection, migration.checksum) +
           (compatible ? ", " + std::to_string(migration.builds_from) : "") +
           ") ON CONFLICT (number) DO UPDATE SET checksum = excluded.checksum");
}

/// It calls a function of migration 4, so that psql can do it too.
void partition_inbox(Connection& connection, const PostgresSettings& settings, int partitions) {
  const Answer answer =
      query(connection, settings, "SELECT partition_inbox(" + std::to_string(partitions) + ")", Wanted::tables);
  const Result& result = answer.result;
  if (ok(result)) return;
  if (is_locked_out(server_error(result.get()))) refuse(connection, settings, answer, Wanted::tables);
  const char* hint = PQresultErrorField(result.get(), PG_DIAG_MESSAGE_HINT);
  throw SchemaError(Code::migration_failed, std::to_string(partitions) +
                                                " partitions: " + server_error(result.get()).message +
                                                "; nothing was changed" + (hint ? std::string(". ") + hint : ""));
}

}  // namespace

int inbox_partitions(const PostgresSettings& settings) {
  check_settings(settings);
  Connection connection(settings);
  try {
    const auto rows = must(connection, settings,
                           "SELECT CASE c.relkind WHEN 'p' THEN (SELECT count(*) FROM pg_catalog.pg_inherits WHERE "
                           "inhparent = c.oid) ELSE 1 END FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON "
                           "n.oid = c.relnamespace WHERE c.relname = 'inbox' AND n.nspname = " +
                               quote_text(connection, settings.schema),
                           Wanted::rows);
    return PQntuples(rows.get()) == 0 ? 0 : std::atoi(PQgetvalue(rows.get(), 0, 0));
  } catch (const ConnectionLost& lost) {
    throw_lost(lost);
  }
}

std::vector<MigrationState> migrate_status(const PostgresSettings& settings, const std::vector<Migration>& known) {
  check_settings(settings);
  Connection connection(settings);
  connection.patience(answer_within(settings, settings.lock_timeout));
  try {
    return compare(read_ledger(connection, settings).value_or(std::vector<LedgerRow>{}), known);
  } catch (const ConnectionLost& lost) {
    throw_lost(lost);
  }
}

std::vector<Migration> migrate_up(const PostgresSettings& settings, const std::vector<Migration>& known,
                                  std::optional<int> partitions, const OnWait& on_wait) {
  return exclusively(settings, on_wait, [&](Connection& connection, const std::string& quoted_schema) {
    create_schema(connection, settings, quoted_schema);
    // A missing table would abort the transaction, so check before reading.
    std::vector<LedgerRow> ledger;
    if (has_table(connection, settings, quoted_schema, "migration"))
      ledger = read_ledger(connection, settings, Wanted::tables).value_or(ledger);
    const auto states = compare(ledger, known);
    refuse_strange(states, known, settings.schema);

    std::vector<Migration> done;
    for (const Migration& migration : known) {
      const auto row =
          std::find_if(ledger.begin(), ledger.end(), [&](const auto& r) { return r.number == migration.number; });
      if (row == ledger.end()) {
        run_file(connection, settings, migration.up_file, migration.up);
        done.push_back(migration);
      }
      if (row == ledger.end() || !row->checksum) write_checksum(connection, settings, migration);
    }
    if (partitions) partition_inbox(connection, settings, *partitions);
    return done;
  });
}

std::vector<Migration> migrate_down(const PostgresSettings& settings, const std::vector<Migration>& known, int steps,
                                    const OnWait& on_wait) {
  return exclusively(settings, on_wait, [&](Connection& connection, const std::string& quoted_schema) {
    std::vector<Migration> done;
    if (!has_table(connection, settings, quoted_schema, "migration")) return done;
    auto states = compare(read_ledger(connection, settings, Wanted::tables).value_or(std::vector<LedgerRow>{}), known);
    refuse_strange(states, known, settings.schema);
    std::reverse(states.begin(), states.end());
    for (const MigrationState& state : states) {
      if (state.kind == MigrationState::Kind::newer) refuse_newer(state, known, settings.schema);
      if (static_cast<int>(done.size()) == steps) break;
      if (state.kind != MigrationState::Kind::applied) continue;
      const auto& migration =
          *std::find_if(known.begin(), known.end(), [&](const auto& m) { return m.number == state.number; });
      std::string down_file = migration.up_file;
      down_file.replace(down_file.rfind(".up.sql"), 7, ".down.sql");
      run_file(connection, settings, down_file, migration.down);
      // The down file of the migration that creates the ledger deletes it.
      if (has_table(connection, settings, quoted_schema, ledger_of(migration))) {
        must(
            connection, settings,
            std::string("DELETE FROM ") + ledger_of(migration) + " WHERE number = " + std::to_string(migration.number));
      }
      done.push_back(migration);
    }
    return done;
  });
}

void check_ledger(Connection& connection, const PostgresSettings& settings) {
  const auto& known = embedded_migration_list();
  const std::string remedy = "; run: turnstile migrate up";
  const auto ledger = read_ledger(connection, settings);
  if (!ledger) {
    throw SchemaError(Code::schema_outdated,
                      "the database has no schema " + settings.schema + " with Turnstile's tables" + remedy +
                          "; or name the schema in use: --schema NAME (TURNSTILE_POSTGRES_SCHEMA, postgres.schema)");
  }
  const auto states = compare(*ledger, known);
  refuse_strange(states, known, settings.schema);
  for (const MigrationState& state : states) {
    if (state.kind != MigrationState::Kind::pending) continue;
    throw SchemaError(Code::schema_outdated, "the schema " + settings.schema + " is older than this build: " +
                                                 file_name(known, state) + " has not run" + remedy);
  }
}

}  // namespace turnstile::postgres
