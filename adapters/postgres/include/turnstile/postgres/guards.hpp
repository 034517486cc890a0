#pragma once
// Guards: other ways to make an effect happen once. Each is one call and one SQL statement in the transaction of the
// effect. It tells whether the caller may act.
//
//   if (!transition(ctx.tx(), "orders", {{"id", order}}, "state", "open", "paid").applied())
//     return Outcome::skip("paid already");
//   ctx.tx().exec("UPDATE account SET cents = cents - $1 WHERE name = $2", cents, name);
//
// Choose the guard by the request:
// - The request has an id of its own: unique().
// - The request began with a form: one_time_token.
// - The request moves a thing through its states: transition().
// - The request was made from a version that its sender has read: version().
// - The request must check more than a guard can before it acts: row_lock().
// Guards work in a handler's transaction (ctx.tx()) and in a transaction of libpqxx (borrow() in pqxx.hpp).
//
// Two effects always need a guard, because each repeat changes the data again: `SET x = x + delta`, and a DELETE that
// does not name the id ("the oldest"). Run them only after a guard that returned `applied`; no guard takes an
// expression.
//
// An expected result is a verdict, never an exception. If two callers run at once, the second waits for the first one's
// transaction, up to lock_timeout, and then sees its result. All guards throw
//   SqlError          The table, a column or a unique index is missing, or a value does not fit. The text names it and
//                     tells what to do. The transaction has then failed. Exception: text with a NUL is refused before
//                     it is sent (22021). Bytes may contain NUL.
//   Error             Invalid names, a key without columns or with NULL, a key of more than one row.
//   StoreBusy         The wait was too long. Or, above READ COMMITTED, a concurrent transaction was faster. Roll back,
//                     and repeat the whole transaction.
//   StoreUnavailable
// Values are sent as parameters. Names are quoted: they may contain anything but NUL, and are case-sensitive.
//
// In a test with the memory twin, MemoryInbox::answer() sets the answer to the recorded statement. The answer is one
// row: the verdict as text ("applied", "already_applied", "conflict"), then the found columns. No row means `missing`.

#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "turnstile/transaction.hpp"

namespace turnstile::postgres {

/// A table. "payment" is searched for along search_path; Table{"shop", "payment"} is in the schema shop. A dot is part
/// of the name.
struct Table {
  /// A table along search_path.
  Table(const char* table) : name(table) {}  // NOLINT(google-explicit-constructor): names convert
  /// A table along search_path.
  Table(std::string table) : name(std::move(table)) {}  // NOLINT
  /// A table in this schema.
  Table(std::string in_schema, std::string table) : schema(std::move(in_schema)), name(std::move(table)) {}

  std::string schema;  ///< empty: along search_path
  std::string name;    ///< the table's name
};

/// A column and a value, both views.
struct Cell {
  std::string_view column;  ///< the column's name
  Param value;              ///< its value
};

/// A list of cells: {{"order_id", id}, {"part", 7}}, or a vector of Cell. A view: valid to the end of the call that it
/// is written in.
class Cells {
 public:
  Cells() = default;
  /// The cells of a braced list, which must outlive this object.
  Cells(std::initializer_list<Cell> cells) : cells_(std::data(cells), cells.size()) {}
  /// A view of cells that another object owns.
  Cells(std::span<const Cell> cells) : cells_(cells) {}  // NOLINT(google-explicit-constructor)
  /// A view of cells that another object owns.
  Cells(const std::vector<Cell>& cells) : cells_(cells) {}  // NOLINT
  /// The cells.
  operator std::span<const Cell>() const noexcept { return cells_; }  // NOLINT

 private:
  std::span<const Cell> cells_;
};

/// Whether the caller may act.
enum class Verdict : std::uint8_t {
  applied,          ///< the change was made now: the caller may act
  already_applied,  ///< it was made before: a repeat
  conflict,         ///< the row is different, or missing
};

/// The result of a guard.
struct Guarded {
  Verdict verdict = Verdict::conflict;  ///< whether the caller may act
  /// The row before this call changed it. Each guard documents the columns. Empty: there was no row.
  Rows found;

  /// The caller may act.
  [[nodiscard]] bool applied() const noexcept { return verdict == Verdict::applied; }
  /// The same change was made before: a repeat.
  [[nodiscard]] bool already_applied() const noexcept { return verdict == Verdict::already_applied; }
  /// Another change was made before, or the row is not as expected.
  [[nodiscard]] bool conflict() const noexcept { return verdict == Verdict::conflict; }
  /// A conflict because no row has the key.
  [[nodiscard]] bool missing() const noexcept { return conflict() && found.empty(); }
};

/// Unique index on the business key: inserts key and values as a row.
/// already_applied: there is a row with this key and the same values. conflict: the row has other values. found: key,
/// then values.
/// The table needs a unique index over exactly the key's columns, neither partial nor deferrable. Values are compared
/// as the column's type compares them. If the type rounds (numeric(10,2), timestamps), pass rounded values; otherwise a
/// repeat looks like a conflict.
/// If a concurrent transaction committed the row while the statement waited, the statement is sent again: its own
/// snapshot cannot show that row.
Guarded unique(Transaction& tx, const Table& table, Cells key, Cells values = {});

/// What row_lock() does if a concurrent transaction has the row.
enum class Wait : std::uint8_t {
  yes,  ///< waits until the concurrent transaction ends
  no,   ///< returns at once: conflict, and `found` is the last committed row
};

/// Pessimistic lock: SELECT … FOR UPDATE, until the transaction ends. Check `found`, then act.
/// applied: the row is locked. conflict: no such row, or (Wait::no) a concurrent transaction has locked it. Never
/// already_applied: the caller must see that in `found`. found: `columns`, or the key's columns if `columns` is empty.
/// Only existing rows can be locked. For rows that are not inserted yet, use unique().
Guarded row_lock(Transaction& tx, const Table& table, Cells key, std::span<const std::string_view> columns,
                 Wait wait = Wait::yes);
/// row_lock() with the columns in a braced list.
inline Guarded row_lock(Transaction& tx, const Table& table, Cells key,
                        std::initializer_list<std::string_view> columns = {}, Wait wait = Wait::yes) {
  return row_lock(tx, table, key, std::span(std::data(columns), columns.size()), wait);
}

/// State machine: if `column` is `from`, sets it to `to`, and sets the columns of `also`.
/// already_applied: it is `to` already, by any transaction. conflict: another state, or no such row. found: the column,
/// then those of `also`.
/// ABA: if a state can come back (paid, refunded, paid), a late repeat passes. Use states that never come back, or
/// version().
Guarded transition(Transaction& tx, const Table& table, Cells key, std::string_view column, const Param& from,
                   const Param& to, Cells also = {});

/// Optimistic lock: if the version is `expected`, increments it and sets the columns of `set`. The caller computed
/// their values from what it read together with that version.
/// conflict: another version, or no such row. found: the version, then the columns of `set`. Never already_applied: a
/// concurrent caller that computed the same values from the same version looks like a repeat. Treating it as a repeat
/// would lose one of the two changes.
/// ABA cannot happen as long as every writer increments the version: it never comes back.
Guarded version(Transaction& tx, const Table& table, Cells key, std::string_view column, std::int64_t expected,
                Cells set = {});

/// Token mechanism: the server issues a token with the form, the request carries it, and the first call that redeems it
/// wins.
/// The table stores SHA-256 of each token, not the token, so read access to it does not allow to redeem a token. By
/// default it is turnstile.one_time_token, which `turnstile migrate up` creates. A table of your own needs the columns
/// of migrations/0005_tokens.up.sql.
namespace one_time_token {

/// The default table. If `postgres.schema` is another schema, pass Table{"SCHEMA", "one_time_token"} instead.
const Table& default_table();

/// A new token: 128 random bits as 32 hex digits. It is valid once the transaction has committed, for `valid_for` by
/// the database's clock. `subject` is a text of your choice (session, user, form), and redeem() must get the same.
/// Throws Error unless valid_for > 0.
std::string issue(Transaction& tx, std::string_view subject, std::chrono::seconds valid_for,
                  const Table& table = default_table());

/// Redeems a token. `token` comes from the request: any bytes. Bytes that are not a token count as an unknown token.
/// already_applied: it was redeemed before. conflict: unknown (found is empty), of another subject, or expired. found:
/// subject, issued_at, expires_at, redeemed_at (NULL: not yet).
Guarded redeem(Transaction& tx, std::string_view token, std::string_view subject, const Table& table = default_table());

/// Deletes up to `most` tokens that expired more than `keep` ago, redeemed or not. A repeat after that finds its token
/// unknown. Skips rows that other transactions have locked. Returns how many it deleted.
std::int64_t purge(Transaction& tx, std::chrono::seconds keep, std::int64_t most = 1'000,
                   const Table& table = default_table());

}  // namespace one_time_token

}  // namespace turnstile::postgres
