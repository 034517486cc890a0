#include "wire/locks.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "turnstile/error.hpp"

namespace turnstile::postgres {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds kPatience{2'000};
constexpr milliseconds kShortestPause{20};
constexpr milliseconds kLongestPause{5'000};
constexpr milliseconds kSoon{50};
constexpr const char* kAdvisory = "an advisory lock";  // in kBlockers too

// Both queries return: the locked object, whether the lock is held already, pid, application, user, state, seconds.

/// Follows the waits from $1 to the sessions that do not wait themselves, which come first. The table of a row lock is
/// that of the waiting session's tuple lock. A wait that ended while the query ran has no lock any more, and is left out.
constexpr const char* kBlockers = R"(
WITH RECURSIVE blocked (waiter, holder) AS (
  SELECT $1::integer, b.pid FROM unnest(pg_catalog.pg_blocking_pids($1::integer)) AS b (pid)
  UNION
  SELECT w.holder, b.pid FROM blocked w CROSS JOIN LATERAL unnest(pg_catalog.pg_blocking_pids(w.holder)) AS b (pid)
), locks AS MATERIALIZED (
  SELECT pid, locktype, relation, granted FROM pg_catalog.pg_locks
)
SELECT DISTINCT CASE WHEN l.locktype = 'advisory' THEN 'an advisory lock'
                     WHEN l.relation IS NULL THEN 'a row'
                     WHEN l.locktype = 'tuple' THEN 'a row of ' || n.nspname || '.' || c.relname
                     ELSE n.nspname || '.' || c.relname END,
       NOT EXISTS (SELECT FROM locks h WHERE h.pid = w.holder AND NOT h.granted AND h.relation = l.relation),
       w.holder,
       coalesce(nullif(a.application_name, ''), 'a session'), coalesce(a.usename, ''), coalesce(a.state, ''),
       extract(epoch FROM clock_timestamp() - a.xact_start)::bigint,
       EXISTS (SELECT FROM locks h WHERE h.pid = w.holder AND NOT h.granted)
  FROM (SELECT * FROM blocked LIMIT 20) w
  JOIN LATERAL (SELECT * FROM locks WHERE pid = w.waiter AND (NOT granted OR locktype = 'tuple')
                 ORDER BY relation IS NULL, granted LIMIT 1) l ON true
  LEFT JOIN pg_catalog.pg_class c ON c.oid = l.relation
  LEFT JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
  LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = w.holder
 ORDER BY 8, 2 DESC, 7 DESC NULLS LAST, 1, 3 LIMIT 3)";

/// A waiting lock also blocks the later ones.
constexpr const char* kCandidates = R"(
SELECT n.nspname || '.' || c.relname, bool_or(l.granted), l.pid, coalesce(nullif(a.application_name, ''), 'a session'),
       coalesce(a.usename, ''), coalesce(a.state, ''), extract(epoch FROM clock_timestamp() - min(a.xact_start))::bigint
  FROM pg_catalog.pg_locks l
  JOIN pg_catalog.pg_class c ON c.oid = l.relation
  JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
  LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid
 WHERE n.nspname = $1 AND c.relkind IN ('r', 'p') AND l.pid <> pg_backend_pid()
   AND l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())
   AND CASE WHEN $2::boolean THEN l.granted
            ELSE l.mode IN ('AccessExclusiveLock', 'ExclusiveLock', 'ShareRowExclusiveLock', 'ShareLock') END
 GROUP BY n.nspname, c.relname, l.pid, a.application_name, a.usename, a.state
 ORDER BY 2 DESC, 7 DESC NULLS LAST, 1, 3 LIMIT 3)";

/// Ends the sessions that block session $1 in the statement $2, or another session in it that blocks $1, and have stood
/// still for $3 ms. Returns pid, application, user, state, seconds. A pooler shows this client another pid than the
/// session's, so the statement is compared, too. The server keeps at least its first 99 bytes. Sessions that lock the
/// whole table are left alone: they are an operator's. So are those in COMMIT: what they wait for, the statement would
/// wait for as well, and a COMMIT that waits for a replica would become visible without it.
constexpr const char* kEndStuck = R"(
WITH RECURSIVE waiting (pid) AS (
  SELECT $1::integer
  UNION
  SELECT b.pid FROM waiting w CROSS JOIN LATERAL unnest(pg_catalog.pg_blocking_pids(w.pid)) AS b (pid)
    JOIN pg_catalog.pg_stat_activity a ON a.pid = b.pid AND left(a.query, 99) = left($2, 99)
), stuck AS MATERIALIZED (
  SELECT DISTINCT a.pid, a.application_name, a.usename, a.state, a.xact_start
    FROM waiting
    JOIN pg_catalog.pg_stat_activity w ON w.pid = waiting.pid
   CROSS JOIN LATERAL unnest(pg_catalog.pg_blocking_pids(w.pid)) AS b (pid)
    JOIN pg_catalog.pg_stat_activity a ON a.pid = b.pid AND a.usesysid = w.usesysid AND a.datid = w.datid
   WHERE w.usename = session_user AND w.datname = current_database() AND left(w.query, 99) = left($2, 99)
     AND EXISTS (SELECT FROM pg_catalog.pg_locks l
                  WHERE l.pid = w.pid AND NOT l.granted AND l.locktype IN ('transactionid', 'tuple'))
     AND a.wait_event_type IS DISTINCT FROM 'Lock' AND a.query NOT ILIKE 'commit%'
     AND greatest(a.state_change, a.query_start) < clock_timestamp() - $3::bigint * interval '1 millisecond'
)
SELECT pid, coalesce(nullif(application_name, ''), 'a session'), usename, coalesce(state, ''),
       extract(epoch FROM clock_timestamp() - xact_start)::bigint
  FROM stuck WHERE pg_catalog.pg_terminate_backend(pid))";

template <std::size_t N>
Result ask(Connection& connection, const char* query, const std::array<std::string, N>& arguments) {
  std::array<const char*, N> values;
  std::transform(arguments.begin(), arguments.end(), values.begin(), [](const auto& each) { return each.c_str(); });
  if (PQsendQueryParams(connection.raw(), query, static_cast<int>(N), nullptr, values.data(), nullptr, nullptr, 0) == 0)
    connection.fail();
  Result rows;
  while (Result result = connection.next_result()) rows = std::move(result);
  return rows;
}

/// A session belongs to the role that logged in, and only that role sees it whole and may end it. The role changes for
/// this transaction only: behind a pooler, the session goes to other clients afterwards (hazard: pooled-session).
template <std::size_t N>
Result ask_as_login(Connection& connection, const char* query, const std::array<std::string, N>& arguments) {
  const std::array<std::string, 0> none;
  ask(connection, "BEGIN", none);
  ask(connection, "SET LOCAL ROLE NONE", none);
  Result rows = ask(connection, query, arguments);
  ask(connection, "COMMIT", none);
  return rows;
}

/// "pid 4711 (psql as app, idle in transaction for 90 s)", of `first` and the next four columns.
std::string session_in(const Result& rows, int row, int first) {
  const auto cell = [&](int column) { return std::string(PQgetvalue(rows.get(), row, first + column)); };
  return "pid " + cell(0) + " (" + cell(1) + (cell(2).empty() ? "" : " as " + cell(2)) +
         (cell(3).empty() ? "" : ", " + cell(3)) + (cell(4).empty() ? "" : " for " + cell(4) + " s") + ")";
}

/// "turnstile.inbox is locked by pid 4711 (psql as app, idle in transaction for 90 s); …". Empty without rows.
std::string sentence(const Result& rows) {
  std::string text;
  for (int row = 0; row < PQntuples(rows.get()); ++row) {
    const auto cell = [&](int column) { return std::string(PQgetvalue(rows.get(), row, column)); };
    const char* const state = cell(1) == "t" ? " is locked by " : " is about to be locked by ";
    text += (text.empty() ? "" : "; ") + cell(0) + (cell(0) == kAdvisory ? " is held by " : state);
    text += cell(2) == "0" ? "a prepared transaction (pg_prepared_xacts)" : session_in(rows, row, 2);
  }
  return text;
}

}  // namespace

LockWatch::LockWatch(const PostgresSettings& settings, Connection& connection, milliseconds lock_timeout, Cut cut)
    : settings_(settings),
      watched_(connection),
      cut_(std::move(cut)),
      pause_(std::clamp(lock_timeout / 3, kShortestPause, kLongestPause)),  // twice in each wait
      soon_(pause_) {
  watched_.while_waiting(pause_, [this] { return look(); });
}

LockWatch::~LockWatch() { watched_.while_waiting({}, {}); }

void LockWatch::tell(milliseconds pause, std::function<void(const std::string&)> told) {
  told_ = std::move(told);
  pause_ = soon_ = pause;
  watched_.while_waiting(pause_, [this] { return look(); });
}

Connection& LockWatch::own() {
  if (!own_) {
    PostgresSettings quick = settings_;
    quick.connect_timeout = std::min(quick.connect_timeout, kPatience);
    own_ = std::make_unique<Connection>(quick, cut_);
    own_->patience(kPatience);
  }
  return *own_;
}

Connection::Looked LockWatch::look() noexcept {
  bool helped = false;
  if (failed_) return {pause_, helped};
  try {
    // The server may wait for the next session only some time after this one has ended.
    helped = stuck_ && end_stuck();
    soon_ = helped ? std::min(kSoon, pause_) : std::min(2 * soon_, pause_);
    const std::array<std::string, 1> waiting{std::to_string(PQbackendPID(watched_.raw()))};
    auto found = sentence(ask_as_login(own(), kBlockers, waiting));
    if (!found.empty()) {
      seen_ = std::move(found);
      if (told_) told_(seen_);
    }
  } catch (...) {
    failed_ = true;
    own_.reset();
  }
  return {soon_, helped};
}

bool LockWatch::end_stuck() {
  const std::array<std::string, 3> stuck{std::to_string(PQbackendPID(watched_.raw())), stuck_->blocked,
                                         std::to_string(stuck_->after.count())};
  const Result rows = ask_as_login(own(), kEndStuck, stuck);
  bool helped = false;
  for (int row = 0; row < PQntuples(rows.get()); ++row) {
    if (!ended_.insert(PQgetvalue(rows.get(), row, 0)).second) continue;
    helped = true;
    stuck_->on_ended(session_in(rows, row, 0));
  }
  return helped;
}

std::string LockWatch::holders(Wanted wanted) {
  if (!seen_.empty()) {
    const bool is_one = seen_.find("; ") == std::string::npos;
    return ": " + seen_ +
           (is_one ? ". End that transaction: SELECT pg_terminate_backend(PID), or wait for it"
                   : ". End the transactions that hold the lock: SELECT pg_terminate_backend(PID), or wait for them");
  }
  std::string candidates;
  try {
    const std::array<std::string, 2> of{settings_.schema, wanted == Wanted::tables ? "true" : "false"};
    candidates = sentence(ask_as_login(own(), kCandidates, of));
  } catch (const StoreUnavailable&) {
  } catch (const ConnectionLost&) {
  }
  if (candidates.empty()) return "; pg_locks and pg_stat_activity show which session holds the lock";
  return ": " + candidates +
         ". This may not be the cause: pg_blocking_pids(PID) shows the blocking session while a session waits";
}

}  // namespace turnstile::postgres
