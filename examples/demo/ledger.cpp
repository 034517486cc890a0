#include "ledger.hpp"

#include <libpq-fe.h>

#include <stdexcept>

namespace demo {

struct Ledger::Connection {
  PGconn* handle = nullptr;
  ~Connection() { PQfinish(handle); }

  using Result = std::unique_ptr<PGresult, decltype(&PQclear)>;
  [[nodiscard]] Result exec(const std::string& sql) const {
    Result result{PQexec(handle, sql.c_str()), &PQclear};
    const auto status = PQresultStatus(result.get());
    if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK) {
      throw std::runtime_error("PostgreSQL: " + std::string(PQresultErrorMessage(result.get())) + "in: " + sql);
    }
    return result;
  }
};

Ledger::Ledger(const std::string& url) : connection_(std::make_unique<Connection>()) {
  connection_->handle = PQconnectdb(url.c_str());
  if (PQstatus(connection_->handle) != CONNECTION_OK) {
    throw std::runtime_error("cannot connect to PostgreSQL: " + std::string(PQerrorMessage(connection_->handle)));
  }
  (void)connection_->exec("SET client_min_messages = warning");
}

Ledger::~Ledger() = default;

void Ledger::create_schema(const std::string& name) {
  (void)connection_->exec("DROP SCHEMA IF EXISTS " + name + " CASCADE");
  (void)connection_->exec("CREATE SCHEMA " + name);
  (void)connection_->exec("SET search_path = " + name);
}

void Ledger::create_table() {
  (void)connection_->exec("CREATE TABLE charge (id text NOT NULL, account text NOT NULL, consumer integer NOT NULL)");
}

Ledger::Count Ledger::count() {
  const auto result = connection_->exec(
      "SELECT coalesce(sum(n), 0), count(*), count(*) FILTER (WHERE n > 1) "
      "FROM (SELECT count(*) AS n FROM charge GROUP BY id) AS by_id");
  const auto cell = [&](int column) { return std::stoll(PQgetvalue(result.get(), 0, column)); };
  return {cell(0), cell(1), cell(2)};
}

void Ledger::drop_schema(const std::string& name) {
  (void)connection_->exec("DROP SCHEMA IF EXISTS " + name + " CASCADE");
}

std::string with_search_path(const std::string& url, const std::string& schema) {
  const bool has_options = url.find('?') != std::string::npos;
  return url + (has_options ? "&" : "?") + "options=-csearch_path%3D" + schema;
}

}  // namespace demo
