#include "admin/session.hpp"

#include "turnstile/error.hpp"
#include "wire/identifier.hpp"

namespace turnstile::postgres {

namespace {

Rows copy_rows(const PGresult* result) {
  const char* affected = PQcmdTuples(const_cast<PGresult*>(result));
  const auto columns = static_cast<std::size_t>(PQnfields(result));
  Rows rows(columns, *affected ? std::stoull(affected) : 0);
  for (int row = 0; row < PQntuples(result); ++row) {
    for (int column = 0; column < PQnfields(result); ++column) {
      if (PQgetisnull(result, row, column)) {
        rows.add(std::nullopt);
      } else {
        rows.add(std::string_view(PQgetvalue(result, row, column),
                                  static_cast<std::size_t>(PQgetlength(result, row, column))));
      }
    }
  }
  return rows;
}

}  // namespace

Admin::Session::Session(const PostgresSettings& settings) : settings_(settings) { check_settings(settings_); }

void Admin::Session::begin(const Patience& patience, std::string_view statement) {
  if (!connection_) connection_ = std::make_unique<Connection>(settings_);
  try {
    run(statement);
    // All with SET LOCAL: behind a pooler other clients use the same session (hazard: pooled-session).
    // DateStyle and TimeZone: replay_mark, a time as text, is the same text in each session.
    run("SELECT set_config('search_path', $1, true), set_config('statement_timeout', $2, true), "
        "set_config('lock_timeout', $3, true), set_config('DateStyle', 'ISO', true), set_config('TimeZone', 'UTC', true)",
        {quote_identifier(settings_.schema), std::to_string(patience.statement_ms + settings_.lock_timeout.count()),
         std::to_string(settings_.lock_timeout.count())});
  } catch (...) {
    connection_.reset();
    throw;
  }
}

void Admin::Session::open_snapshot(const Patience& patience) {
  begin(patience, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY");
  // The caller reads from other sources between its statements.
  run("SELECT set_config('idle_in_transaction_session_timeout', '0', true)");
}

Rows Admin::Session::run(std::string_view sql, const Arguments& arguments) {
  std::vector<const char*> values;
  for (const auto& argument : arguments) values.push_back(argument ? argument->c_str() : nullptr);
  try {
    if (PQsendQueryParams(connection_->raw(), std::string(sql).c_str(), static_cast<int>(values.size()), nullptr,
                          values.data(), nullptr, nullptr, 0) == 0) {
      connection_->fail();
    }
    return collect();
  } catch (const ConnectionLost& lost) {
    throw_lost(lost);
  }
}

Rows Admin::Session::collect() {
  LockWatch watch(settings_, *connection_, settings_.lock_timeout);
  Rows rows;
  std::optional<ServerError> refusal;
  while (Result result = connection_->next_result()) {
    const auto status = PQresultStatus(result.get());
    if (status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK) rows = copy_rows(result.get());
    else refusal = server_error(result.get());
  }
  if (refusal) refuse(*refusal, watch);
  return rows;
}

void Admin::Session::refuse(const ServerError& error, LockWatch& watch) const {
  for (const std::string_view missing : {"42P01", "42703", "3F000"}) {
    if (error.sqlstate != missing) continue;
    throw SchemaError(Code::schema_outdated, "the schema " + settings_.schema +
                                                 " is missing, or not the version that this build needs: " +
                                                 describe(error) + "; run: turnstile migrate up");
  }
  if (error.sqlstate == "55P03") throw StoreBusy(describe(error) + watch.holders(Wanted::rows));
  // throw_operator_error() names a consumer's GRANT statements, and a consumer neither changes rows nor reads all tables.
  if (error.sqlstate == "42501") throw_needs_owner(error, settings_.schema, connection_->user());
  throw_operator_error(error, settings_.schema, connection_->user());
}

int Admin::Session::server_version() const { return PQserverVersion(connection_->raw()); }

std::string microseconds_of(std::string_view time) {
  const std::string seconds = "extract(epoch FROM " + std::string(time) + ")";
  return "(CASE WHEN " + seconds + " IS NOT NULL THEN least(greatest(" + seconds +
         ", -210866803200), 9223372036854) * 1000000 END)::bigint";
}

DatabaseTime time_at(const Rows& rows, std::size_t row, std::size_t column) {
  return DatabaseTime(std::chrono::microseconds(rows.get<std::int64_t>(row, column)));
}

std::optional<DatabaseTime> time_or_none(const Rows& rows, std::size_t row, std::size_t column) {
  if (!rows.at(row, column)) return std::nullopt;
  return time_at(rows, row, column);
}

std::string text_or_empty(const Rows& rows, std::size_t row, std::size_t column) {
  return rows.at(row, column).value_or("");
}

MessageId id_at(const Rows& rows, std::size_t row, std::size_t column) {
  return MessageId::from(rows.get<std::string>(row, column));
}

}  // namespace turnstile::postgres
