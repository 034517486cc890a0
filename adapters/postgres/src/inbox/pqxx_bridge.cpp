#include "inbox/pqxx_bridge.hpp"

#include <pqxx/connection>
#include <pqxx/nontransaction>
#include <pqxx/version>
#include <utility>

#include "turnstile/error.hpp"

#if PQXX_VERSION_MAJOR < 7
#include <pqxx/connectionpolicy>
#include <pqxx/except>
#endif

namespace turnstile::postgres {

// The transaction is a pqxx::nontransaction, which sends no BEGIN or COMMIT: the framework's transaction is open
// already.

#if PQXX_VERSION_MAJOR < 7

namespace {

/// Provides the existing connection, and refuses to make another one when that is lost.
class Borrowed final : public pqxx::connectionpolicy {
 public:
  explicit Borrowed(PGconn* connection) : connectionpolicy(""), connection_(connection) {}
  handle do_startconnect(handle had) override {
    if (had) return had;
    if (handed_out_) throw pqxx::broken_connection("lost the connection to PostgreSQL, and the transaction with it");
    handed_out_ = true;
    return connection_;
  }
  handle do_completeconnect(handle connection) override { return connection; }
  handle do_dropconnect(handle) noexcept override { return nullptr; }
  handle do_disconnect(handle) noexcept override { return nullptr; }

 private:
  PGconn* connection_;
  bool handed_out_ = false;
};

class BorrowedConnection final : public pqxx::connection_base {
 public:
  explicit BorrowedConnection(PGconn* connection) : connection_base(policy_), policy_(connection) { init(); }
  ~BorrowedConnection() { close(); }

 private:
  Borrowed policy_;  // connection_base only keeps a reference before init()
};

}  // namespace

struct PqxxBridge::Parts {
  explicit Parts(PGconn* raw) : connection(raw), transaction(connection) {}
  BorrowedConnection connection;
  pqxx::nontransaction transaction;
};

#elif PQXX_VERSION_MAJOR == 7 && PQXX_VERSION_MINOR < 6

struct PqxxBridge::Parts {
  explicit Parts(PGconn*) {
    throw Error(Code::api_misused,
                "libpqxx " PQXX_VERSION
                " cannot take over a connection (6.4 to 6.x and 7.6 or later can); use exec() and defer()");
  }
  pqxx::connection connection;
  pqxx::nontransaction transaction{connection};
};

#else

/// Takes the connection back before libpqxx would close it.
class BorrowedConnection {
 public:
  explicit BorrowedConnection(PGconn* raw) : connection_(pqxx::connection::seize_raw_connection(raw)) {}
  ~BorrowedConnection() { static_cast<void>(std::move(connection_).release_raw_connection()); }
  BorrowedConnection(const BorrowedConnection&) = delete;
  BorrowedConnection& operator=(const BorrowedConnection&) = delete;
  pqxx::connection& get() noexcept { return connection_; }

 private:
  pqxx::connection connection_;
};

struct PqxxBridge::Parts {
  explicit Parts(PGconn* raw) : connection(raw), transaction(connection.get()) {}
  BorrowedConnection connection;
  pqxx::nontransaction transaction;
};

#endif

PqxxBridge::PqxxBridge(PGconn* connection) : parts_(std::make_unique<Parts>(connection)) {}
PqxxBridge::~PqxxBridge() = default;
pqxx::transaction_base& PqxxBridge::transaction() noexcept { return parts_->transaction; }

}  // namespace turnstile::postgres
