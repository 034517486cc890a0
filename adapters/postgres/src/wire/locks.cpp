#include "wire/locks.hpp"

#include <algorithm>

#include "turnstile/error.hpp"
#include "wire/connection.hpp"

namespace turnstile::postgres {

namespace {

constexpr std::chrono::milliseconds kPatience{2'000};

// A waiting lock also blocks the later ones.
constexpr const char* kHolders = R"(
SELECT c.relname, l.pid, bool_or(l.granted), coalesce(nullif(a.application_name, ''), 'a session'), coalesce(a.usename, ''),
       coalesce(a.state, ''), coalesce(extract(epoch FROM clock_timestamp() - min(a.xact_start))::bigint, 0)
  FROM pg_catalog.pg_locks l
  JOIN pg_catalog.pg_class c ON c.oid = l.relation
  JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
  LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid
 WHERE n.nspname = $1 AND c.relkind IN ('r', 'p') AND l.pid <> pg_backend_pid()
   AND l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())
   AND CASE WHEN $2::boolean THEN l.granted
            ELSE l.mode IN ('AccessExclusiveLock', 'ExclusiveLock', 'ShareRowExclusiveLock', 'ShareLock') END
 GROUP BY c.relname, l.pid, a.application_name, a.usename, a.state
 ORDER BY 3 DESC, 7 DESC, 1, 2 LIMIT 3)";

Result ask(Connection& connection, const std::string& schema, Wanted wanted) {
  const char* const values[] = {schema.c_str(), wanted == Wanted::tables ? "true" : "false"};
  if (PQsendQueryParams(connection.raw(), kHolders, 2, nullptr, values, nullptr, nullptr, 0) == 0) connection.fail();
  Result rows;
  while (Result result = connection.next_result()) rows = std::move(result);
  return rows;
}

}  // namespace

std::string lock_holders(const PostgresSettings& settings, Wanted wanted) {
  std::string text;
  try {
    PostgresSettings quick = settings;
    quick.connect_timeout = std::min(quick.connect_timeout, kPatience);
    Connection connection(quick);
    connection.patience(kPatience);
    const Result rows = ask(connection, settings.schema, wanted);
    for (int row = 0; row < PQntuples(rows.get()); ++row) {
      const auto cell = [&](int column) { return std::string(PQgetvalue(rows.get(), row, column)); };
      text += (text.empty() ? ": " : "; ") + settings.schema + "." + cell(0) +
              (cell(2) == "t" ? " is locked by pid " : " is about to be locked by pid ") + cell(1) + " (" + cell(3) +
              (cell(4).empty() ? "" : " as " + cell(4)) + (cell(5).empty() ? "" : ", " + cell(5)) + " for " + cell(6) +
              " s)";
    }
  } catch (const StoreUnavailable&) {
    text.clear();
  } catch (const ConnectionLost&) {
    text.clear();
  }
  if (text.empty()) return "; pg_locks and pg_stat_activity show which session holds it";
  return text + ". End that transaction: SELECT pg_terminate_backend(PID), or wait for it";
}

}  // namespace turnstile::postgres
