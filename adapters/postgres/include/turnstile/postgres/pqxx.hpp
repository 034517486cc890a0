#pragma once
// libpqxx, in both directions. native() gives a handler the batch's own transaction:
//
//   pqxx::transaction_base& tx = turnstile::postgres::native(ctx.tx());
//   tx.exec("UPDATE …");
//
// borrow() makes a Transaction& of your own libpqxx transaction, for example for guards.hpp:
//
//   pqxx::work work{connection};
//   auto tx = turnstile::postgres::borrow(work);
//   if (unique(tx, "payment", {{"id", id}}).applied()) work.exec("UPDATE …");
//   work.commit();
//
// native() works with libpqxx 6.4 to 6.x and from 7.6. The versions between them cannot take over a connection.

#include <pqxx/transaction_base>

#include "turnstile/transaction.hpp"

namespace turnstile::postgres {

/// Sends the deferred statements, and gives the open transaction to libpqxx. The reference is valid until the handler
/// returns. run(), queue() and the reference may be used alternately. commit() and abort() on it do nothing: the batch
/// commits. Throws Error for a transaction that is not PostgreSQL's, and what Transaction::run() throws.
pqxx::transaction_base& native(Transaction& transaction);

/// A view of a libpqxx transaction, whose owner commits it. Use it on the owner's thread, and only while the
/// transaction lives.
class BorrowedTransaction final : public Transaction {
 public:
  /// The transaction must outlive this object.
  explicit BorrowedTransaction(pqxx::transaction_base& transaction) noexcept : transaction_(transaction) {}
  BorrowedTransaction(const BorrowedTransaction&) = delete;
  BorrowedTransaction& operator=(const BorrowedTransaction&) = delete;

  /// Throws as Transaction::exec(): SqlError with the SQLSTATE and without DETAIL, StoreBusy, StoreUnavailable. All
  /// arguments, including bytes and arrays, are sent as text, and the server infers their types. Cast them if it cannot
  /// (`$1::bytea`).
  Rows run(std::string_view sql, std::span<const Param> params) override;
  /// Runs the statement at once, and throws its error from here.
  void queue(std::string_view sql, std::span<const Param> params) override;

 private:
  pqxx::transaction_base& transaction_;
};

/// Takes any libpqxx transaction: pqxx::work, a subtransaction, or a nontransaction. In a nontransaction each statement
/// commits by itself, so a guard's lock is released at once. libpqxx 6.4 and later. Guards need READ COMMITTED,
/// libpqxx's default; above it a race throws StoreBusy.
BorrowedTransaction borrow(pqxx::transaction_base& transaction);

}  // namespace turnstile::postgres
