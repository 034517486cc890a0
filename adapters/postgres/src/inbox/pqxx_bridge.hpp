#pragma once
// Runs libpqxx on a connection that it did not make. The only place that knows its versions
// (hazard: silent-reconnect, round-trips).

#include <libpq-fe.h>

#include <memory>
#include <pqxx/transaction_base>

namespace turnstile::postgres {

/// Lends the connection to libpqxx while this object lives. The connection must not be in pipeline mode while libpqxx
/// uses it. The destructor neither closes the connection nor ends its transaction. libpqxx's notice handlers stay, and
/// must be replaced.
class PqxxBridge {
 public:
  explicit PqxxBridge(PGconn* connection);
  ~PqxxBridge();
  PqxxBridge(const PqxxBridge&) = delete;
  PqxxBridge& operator=(const PqxxBridge&) = delete;

  pqxx::transaction_base& transaction() noexcept;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace turnstile::postgres
