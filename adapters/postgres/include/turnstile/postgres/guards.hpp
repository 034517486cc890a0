#pragma once
// Guards: the other known ways to idempotence, each one call and one SQL statement in the transaction of its effect. Each says
// whether the caller is the one who acts.
//
//   if (!transition(ctx.tx(), "orders", {{"id", order}}, "state", "open", "paid").applied()) return Outcome::skip("paid already");
//   ctx.tx().exec("UPDATE account SET cents = cents - $1 WHERE name = $2", cents, name);
//
// Which guard: a request that has an id of its own: unique(); that began with a form: one_time_token; that moves a thing through
// its states: transition(); that was made from a version which it read: version(); that must look at more than a guard can before it
// acts: row_lock(). They work in a handler's transaction (ctx.tx()) and in one of libpqxx (borrow() in pqxx.hpp).
//
// Two effects need a guard wherever they stand, since a repeat makes them anew: `SET x = x + delta`, and a DELETE without the id of
// what is meant ("the oldest"). Put them behind a guard that answered `applied`; no guard takes an expression.
//
// What is expected comes back as a verdict, never as an exception. Of two callers at once the second waits for the first one's
// transaction, at most lock_timeout, and is then told what that left. All throw
//   SqlError          the table, a column or a unique index is missing, or a value does not fit. Names it and says what to do; the
//                     transaction is lost then (not when the value was text with a NUL: that is refused before it is sent, 22021;
//                     bytes may hold any)
//   Error             names that cannot be names, a key without columns or with NULL, a key of more than one row
//   StoreBusy         the wait was too long, or, above READ COMMITTED, a rival was faster: roll back, try the whole again
//   StoreUnavailable
// Values travel as parameters. Names are quoted: they may hold anything but NUL, and upper and lower case count.
//
// In a test with the memory twin, MemoryInbox::answer() answers for the database, to the statement that it has recorded: one row of the
// verdict as text ("applied", "already_applied", "conflict") and of what was found; no row is `missing`.

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

/// "payment" is looked for along search_path; Table{"shop", "payment"} is in the schema shop. A dot is part of the name.
struct Table {
  /// A table that search_path finds.
  Table(const char* table) : name(table) {}  // NOLINT(google-explicit-constructor): names convert
  /// A table that search_path finds.
  Table(std::string table) : name(std::move(table)) {}  // NOLINT
  /// A table of this schema.
  Table(std::string in_schema, std::string table) : schema(std::move(in_schema)), name(std::move(table)) {}

  std::string schema;  ///< empty: along search_path
  std::string name;    ///< the table's name
};

/// A column and a value, both views.
struct Cell {
  std::string_view column;  ///< the column's name
  Param value;              ///< what it holds, or is to hold
};

/// {{"order_id", id}, {"part", 7}}, or a vector of Cell. A view: valid to the end of the call that it is written in.
class Cells {
 public:
  Cells() = default;
  /// The cells of a braced list, which must live as long as this.
  Cells(std::initializer_list<Cell> cells) : cells_(std::data(cells), cells.size()) {}
  /// A view of cells that live elsewhere.
  Cells(std::span<const Cell> cells) : cells_(cells) {}  // NOLINT(google-explicit-constructor)
  /// A view of cells that live elsewhere.
  Cells(const std::vector<Cell>& cells) : cells_(cells) {}  // NOLINT
  /// The cells.
  operator std::span<const Cell>() const noexcept { return cells_; }  // NOLINT

 private:
  std::span<const Cell> cells_;
};

/// Whether the caller may act.
enum class Verdict : std::uint8_t {
  applied,          ///< it was not so before and is now: the caller goes on
  already_applied,  ///< it was so before: a repeat
  conflict,         ///< something else is there, or nothing
};

/// What a guard answers.
struct Guarded {
  Verdict verdict = Verdict::conflict;  ///< what the caller may do
  /// The row as it was found, before this call changed it; which columns is said at each guard. Empty: there was none.
  Rows found;

  /// The caller may act.
  [[nodiscard]] bool applied() const noexcept { return verdict == Verdict::applied; }
  /// The same was done before: a repeat.
  [[nodiscard]] bool already_applied() const noexcept { return verdict == Verdict::already_applied; }
  /// Something else was done before, or the row is not as expected.
  [[nodiscard]] bool conflict() const noexcept { return verdict == Verdict::conflict; }
  /// A conflict with nothing: no row has the key.
  [[nodiscard]] bool missing() const noexcept { return conflict() && found.empty(); }
};

/// Unique index on the business key: inserts key and values as a row.
/// already_applied: there is a row with this key and the same values. conflict: with other values. found: key, then values.
/// The table needs a unique index over exactly the key's columns, not partial, not deferrable. Values are compared as the column's
/// type compares them; where it rounds (numeric(10,2), timestamps), write them rounded, or a repeat looks like a conflict.
/// The same statement is sent once more when a rival's row was committed while it waited: its own snapshot cannot show it.
Guarded unique(Transaction& tx, const Table& table, Cells key, Cells values = {});

/// What row_lock() does if a concurrent transaction has the row.
enum class Wait : std::uint8_t {
  yes,  ///< until the rival's transaction ends
  no,   ///< who finds it locked is told so: conflict, and found is what was committed last
};

/// Pessimistic lock: SELECT … FOR UPDATE, until the transaction ends. Look at what was found, then act.
/// applied: the row is locked. conflict: no such row, or (Wait::no) a rival has it. Never already_applied: that is for the caller
/// to see in what was found. found: `columns`, or the key's without any. Only rows that exist can be locked: for what is yet to be
/// inserted, use unique().
Guarded row_lock(Transaction& tx, const Table& table, Cells key, std::span<const std::string_view> columns,
                 Wait wait = Wait::yes);
/// The same with the columns in a braced list.
inline Guarded row_lock(Transaction& tx, const Table& table, Cells key,
                        std::initializer_list<std::string_view> columns = {}, Wait wait = Wait::yes) {
  return row_lock(tx, table, key, std::span(std::data(columns), columns.size()), wait);
}

/// State machine: sets `column` from `from` to `to`, and the columns of `also`, where it is `from`.
/// already_applied: it is `to`, whoever made it so. conflict: another state, or no such row. found: the column, then those of `also`.
/// ABA: a state that comes back (paid, refunded, paid) lets a late repeat through. Make states that never return, or use version().
Guarded transition(Transaction& tx, const Table& table, Cells key, std::string_view column, const Param& from,
                   const Param& to, Cells also = {});

/// Optimistic lock: where the version is the `expected` one, counts it up and sets the columns of `set`, which the caller computed
/// from what it read together with that version.
/// conflict: another version, or no such row. found: the version, then the columns of `set`. Never already_applied: a rival who
/// computed the same values from the same version looks like a repeat, and taking it for one would lose his change or ours.
/// Free of ABA as long as every writer counts the version up: it never comes back.
Guarded version(Transaction& tx, const Table& table, Cells key, std::string_view column, std::int64_t expected,
                Cells set = {});

/// Token mechanism: the server issues a token with the form, the request carries it, and the first to redeem it wins.
/// The table (by default turnstile.one_time_token, which `turnstile migrate up` makes) holds SHA-256 of each token, not the token:
/// who can read it can redeem nothing. A table of one's own has the columns of migrations/0005_tokens.up.sql.
namespace one_time_token {

/// Where `postgres.schema` is another one, name it: Table{"SCHEMA", "one_time_token"}.
const Table& default_table();

/// 128 random bits as 32 hex digits, good once the transaction has committed, for `valid_for` by the database's clock. `subject` is
/// what it is for (session, user, form): text of one's own making that redeem() must say again. Throws Error unless valid_for > 0.
std::string issue(Transaction& tx, std::string_view subject, std::chrono::seconds valid_for,
                  const Table& table = default_table());

/// `token` is what came with the request: any bytes; what is no token is merely unknown.
/// already_applied: it was redeemed before. conflict: unknown (found is empty), of another subject, or past its time.
/// found: subject, issued_at, expires_at, redeemed_at (NULL: not yet).
Guarded redeem(Transaction& tx, std::string_view token, std::string_view subject, const Table& table = default_table());

/// Deletes at most `most` tokens whose time ended more than `keep` ago, redeemed or not; a repeat after that finds its token unknown.
/// Passes over what others have locked. Returns how many.
std::int64_t purge(Transaction& tx, std::chrono::seconds keep, std::int64_t most = 1'000,
                   const Table& table = default_table());

}  // namespace one_time_token

}  // namespace turnstile::postgres
