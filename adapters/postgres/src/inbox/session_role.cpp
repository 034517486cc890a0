// Whether handlers have left another role in their transaction, or have made it read-only. The framework's statements
// run in it too. PostgreSQL refuses them then, with the same errors as after a right was revoked or on a standby. Those
// are outages, in which no message fails. So the statements are preceded by a check, which only a handler can fail. The
// next message and COMMIT are preceded by it, too, if a statement before has named a role.

#include "inbox/session.hpp"
#include "turnstile/error.hpp"

namespace turnstile::postgres {

namespace {

/// Its settings end with the transaction.
constexpr std::string_view kMarkTransaction = R"(
SELECT pg_catalog.set_config('turnstile.transaction', 'on', true),
       pg_catalog.set_config('turnstile.role', current_user::text, true))";

/// It fails with 22P02. It does not fail when it is planned, because concat() is not immutable. In a transaction that
/// is not the marked one it does not fail: see kSameTransaction.
constexpr std::string_view kCheckRole = R"(
SELECT CASE WHEN current_user::text =
                 coalesce(nullif(pg_catalog.current_setting('turnstile.role', true), ''), current_user::text)
             AND NOT pg_catalog.current_setting('transaction_read_only')::boolean THEN 0
       ELSE pg_catalog.concat('a handler has left another role, or has made the transaction read-only')::integer END)";

}  // namespace

void Session::mark_transaction() {
  if (marked_) return;
  loan_->pipeline.add(kMarkTransaction, kCaller);
  marked_ = true;
}

/// libpqxx may send statements at any time.
void Session::check_role() {
  if (!marked_ || (role_checked_ && !bridge_)) return;
  with_connection([&] { add_role_check(); });
}

void Session::add_role_check() {
  loan_->pipeline.add(kCheckRole, message_, Pipeline::Keep::nothing, Author::check);
  role_checked_ = true;
}

/// Another message of the transaction must not run under that role. After a failure, the check would fail for that reason.
void Session::check_named_role() {
  if (role_named_ && marked_ && !aborted()) add_role_check();
  role_named_ = false;
}

void Session::throw_role_changed(Owner message) {
  throw DeferredSqlError(
      "a handler has changed the role of its transaction, or has made it read-only, for example with set_config(); "
      "restore the role before ctx.reply(), before ctx.publish() and at the end of the handler: SELECT "
      "set_config('role', 'none', true); or work as another role in a SECURITY DEFINER function (SQLSTATE 2D000)",
      "2D000", message);
}

}  // namespace turnstile::postgres
