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

void Ledger::create_table(const std::string& name) {
  (void)connection_->exec("CREATE TABLE " + name +
                          " (id text NOT NULL, account text NOT NULL, consumer integer NOT NULL)");
}

Ledger::Count Ledger::count(const std::string& table) {
  const auto cell = [](const Connection::Result& result, int row, int column) {
    return std::stoll(PQgetvalue(result.get(), row, column));
  };
  const auto sums = connection_->exec(
      "SELECT coalesce(sum(n), 0), count(*), count(*) FILTER (WHERE n > 1) "
      "FROM (SELECT count(*) AS n FROM " +
      table + " GROUP BY id) AS by_id");
  Count count{cell(sums, 0, 0), cell(sums, 0, 1), cell(sums, 0, 2)};
  const auto by_consumer = connection_->exec("SELECT consumer, count(*) FROM " + table + " GROUP BY consumer");
  for (int row = 0; row < PQntuples(by_consumer.get()); ++row)
    count.rows_of[static_cast<int>(cell(by_consumer, row, 0))] = cell(by_consumer, row, 1);
  return count;
}

void Ledger::drop_schema(const std::string& name) {
  (void)connection_->exec("DROP SCHEMA IF EXISTS " + name + " CASCADE");
}

std::string with_search_path(const std::string& url, const std::string& schema) {
  const bool has_options = url.find('?') != std::string::npos;
  return url + (has_options ? "&" : "?") + "options=-csearch_path%3D" + schema;
}

}  // namespace demo
