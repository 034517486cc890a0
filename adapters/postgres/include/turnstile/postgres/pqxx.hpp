#pragma once
// libpqxx on the batch's own transaction, for handlers that want it.
//
//   pqxx::transaction_base& tx = turnstile::postgres::native(ctx.tx());
//   tx.exec("UPDATE …");
//
// Works with libpqxx 6.4 to 6.x and from 7.6; between them libpqxx has no way to take over a connection.

#include <pqxx/transaction_base>

#include "turnstile/transaction.hpp"

namespace turnstile::postgres {

/// Sends what was deferred and gives the open transaction to libpqxx. The reference is valid until the handler returns;
/// run(), queue() and the reference may be used in turn. commit() and abort() on it do nothing: the batch commits.
/// Throws Error for a transaction that is not PostgreSQL's, and what Transaction::run() throws.
pqxx::transaction_base& native(Transaction& transaction);

}  // namespace turnstile::postgres
