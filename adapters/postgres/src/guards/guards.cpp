#include "turnstile/postgres/guards.hpp"

#include "guards/guard_call.hpp"

namespace turnstile::postgres {

namespace {

// The statements have a common form. `found` locks the row, and reads it after the wait (hazard: stale-snapshot). A
// plain read beside the lock would return the row from before the wait. The change acts on `found`, and the result
// contains both.
// NO KEY UPDATE is the lock that the change takes anyway, and allows foreign keys to the row. LIMIT 2 shows whether
// there are several rows. The change finds the row by its key, not its ctid. After a wait the statement's snapshot does
// not contain the place of the new row.

constexpr std::string_view kOneRow = "(SELECT count(*) FROM found) = 1";

/// The common part of transition() and version(). SET assigns `change` to `column`.
struct Step {
  std::string_view column;
  std::string change;   ///< the new value of the column
  std::string before;   ///< condition on found.c0 for the change
  std::string already;  ///< expression over found.c0: the change was made before
  Cells also;
};

Guarded take_step(GuardCall& call, const Step& step) {
  std::string selected = "t." + call.column(step.column) + " AS c0", handed_back = "found.c0";
  std::string set = call.column(step.column) + " = " + step.change;
  std::size_t count = 0;
  for (const Cell& cell : std::span<const Cell>(step.also)) {
    const std::string name = "c" + std::to_string(++count);
    append(selected, ", ", "t." + call.column(cell.column) + " AS " + name);
    append(handed_back, ", ", "found." + name);
    append(set, ", ", call.column(cell.column) + " = " + call.argument(cell.column, cell.value));
  }
  return call.ask("WITH found AS MATERIALIZED (SELECT " + selected + " FROM " + call.table() + " AS t WHERE " +
                  call.key_matches() + " LIMIT 2 FOR NO KEY UPDATE), changed AS (UPDATE " + call.table() +
                  " AS t SET " + set + " FROM found WHERE " + call.key_matches() + " AND " + step.before + " AND " +
                  std::string(kOneRow) + " RETURNING 1) SELECT " +
                  verdict_case("EXISTS (SELECT FROM changed)", step.already) + ", " + handed_back + " FROM found");
}

}  // namespace

Guarded unique(Transaction& tx, const Table& table, Cells key, Cells values) {
  GuardCall call(tx, "unique", table, key);
  std::string columns, given, selected, same, handed_back;
  std::size_t count = 0;
  const auto add = [&](const Cell& cell, const std::string& argument) {
    const std::string name = "c" + std::to_string(count++), column = call.column(cell.column);
    append(columns, ", ", column);
    append(given, ", ", argument);
    append(selected, ", ", "t." + column + " AS " + name);
    append(handed_back, ", ", "found." + name);
  };
  for (const Cell& cell : std::span<const Cell>(key)) add(cell, call.key_arguments()[count]);
  for (const Cell& cell : std::span<const Cell>(values)) {
    const std::string argument = call.argument(cell.column, cell.value);
    append(same, " AND ", "found.c" + std::to_string(count) + " IS NOT DISTINCT FROM " + argument);
    add(cell, argument);
  }
  // PostgreSQL takes an argument's type from its first mention: in VALUES, where it is the column's type.
  const std::string sql = "WITH fresh AS (INSERT INTO " + call.table() + " (" + columns + ") VALUES (" + given +
                          ") ON CONFLICT (" + call.key_columns() + ") DO NOTHING RETURNING 1), found AS (SELECT " +
                          selected + " FROM " + call.table() + " AS t WHERE " + call.key_matches() + ") SELECT " +
                          verdict_case("EXISTS (SELECT FROM fresh)", same.empty() ? "true" : same) + ", " +
                          handed_back +
                          " FROM (SELECT) AS always LEFT JOIN found ON true"
                          " WHERE EXISTS (SELECT FROM fresh) OR found.c0 IS NOT NULL";
  // A row that was neither inserted nor found was committed by a concurrent transaction during the wait
  // (hazard: blocked-insert). The next snapshot contains it, unless it was deleted at once. A call that fails four
  // times like this has another problem.
  for (int tries = 0; tries < 5; ++tries) {
    Guarded result = call.ask(sql);
    if (result.missing()) continue;
    if (result.applied()) result.found = {};
    return result;
  }
  call.fail("PostgreSQL neither inserted nor found the row; a trigger, a rule or row security hides it from this role");
}

Guarded row_lock(Transaction& tx, const Table& table, Cells key, std::span<const std::string_view> columns, Wait wait) {
  GuardCall call(tx, "row_lock", table, key);
  std::string selected;
  for (const std::string_view name : columns) append(selected, ", ", "t." + call.column(name));
  if (columns.empty()) {
    for (const Cell& cell : std::span<const Cell>(key)) append(selected, ", ", "t." + call.column(cell.column));
  }
  const std::string from = selected + " FROM " + call.table() + " AS t WHERE " + call.key_matches();
  if (wait == Wait::yes) return call.ask("SELECT 'applied', " + from + " LIMIT 2 FOR UPDATE");
  return call.ask("WITH locked AS MATERIALIZED (SELECT 'applied', " + from +
                  " LIMIT 2 FOR UPDATE SKIP LOCKED) SELECT * FROM locked UNION ALL (SELECT 'conflict', " + from +
                  " AND NOT EXISTS (SELECT FROM locked) LIMIT 2)");
}

Guarded transition(Transaction& tx, const Table& table, Cells key, std::string_view column, const Param& from,
                   const Param& to, Cells also) {
  GuardCall call(tx, "transition", table, key);
  const std::string to_argument = call.argument(column, to), from_argument = call.argument(column, from);
  const std::string is_there = "found.c0 IS NOT DISTINCT FROM " + to_argument;
  return take_step(call, {column, to_argument,
                          "found.c0 IS NOT DISTINCT FROM " + from_argument + " AND NOT " + is_there, is_there, also});
}

Guarded version(Transaction& tx, const Table& table, Cells key, std::string_view column, std::int64_t expected,
                Cells set) {
  GuardCall call(tx, "version", table, key);
  const std::string counted = call.argument(column, expected);
  return take_step(call, {column, "found.c0 + 1", "found.c0 = " + counted, "false", set});
}

}  // namespace turnstile::postgres
