#pragma once
// libpqxx, both ways round: on the batch's own transaction, for handlers that want it,
//
//   pqxx::transaction_base& tx = turnstile::postgres::native(ctx.tx());
//   tx.exec("UPDATE …");
//
// and somebody's own libpqxx transaction as one of ours, for what takes a Transaction& (guards.hpp):
//
//   pqxx::work work{connection};
//   auto tx = turnstile::postgres::borrow(work);
//   if (unique(tx, "payment", {{"id", id}}).applied()) work.exec("UPDATE …");
//   work.commit();
//
// native() works with libpqxx 6.4 to 6.x and from 7.6; between them libpqxx has no way to take over a connection.

#include <pqxx/transaction_base>

#include "turnstile/transaction.hpp"

namespace turnstile::postgres {

/// Sends what was deferred and gives the open transaction to libpqxx. The reference is valid until the handler returns;
/// run(), queue() and the reference may be used in turn. commit() and abort() on it do nothing: the batch commits.
/// Throws Error for a transaction that is not PostgreSQL's, and what Transaction::run() throws.
pqxx::transaction_base& native(Transaction& transaction);

/// A view of a libpqxx transaction, whose owner commits it. Used by its owner's thread, no longer than it lives.
class BorrowedTransaction final : public Transaction {
 public:
  /// The transaction must outlive this object.
  explicit BorrowedTransaction(pqxx::transaction_base& transaction) noexcept : transaction_(transaction) {}
  BorrowedTransaction(const BorrowedTransaction&) = delete;
  BorrowedTransaction& operator=(const BorrowedTransaction&) = delete;

  /// Throws as Transaction::exec() says: SqlError with the SQLSTATE and without DETAIL, StoreBusy, StoreUnavailable. All arguments
  /// travel as text and the server infers their types, those of bytes and arrays too: cast them where it cannot (`$1::bytea`).
  Rows run(std::string_view sql, std::span<const Param> params) override;
  /// At once, so that an error is thrown from here.
  void queue(std::string_view sql, std::span<const Param> params) override;

 private:
  pqxx::transaction_base& transaction_;
};

/// Any libpqxx transaction: pqxx::work, a subtransaction, a nontransaction (each statement then commits by itself, and what a guard
/// has locked is free again at once). libpqxx 6.4 and later. Guards want READ COMMITTED, libpqxx's default; above it a race throws
/// StoreBusy.
BorrowedTransaction borrow(pqxx::transaction_base& transaction);

}  // namespace turnstile::postgres
