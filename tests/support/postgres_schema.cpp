#include "tests/support/postgres_schema.hpp"

#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <stdexcept>

#include "tests/support/own_database.hpp"
#include "turnstile/postgres/migrations.hpp"

namespace turnstile::test {

namespace {

std::string unique_name() {
  static std::atomic<int> count{0};
  return "test_" + std::to_string(getpid()) + "_" + std::to_string(++count);
}

}  // namespace

std::optional<std::string> postgres_url() {
  const char* url = std::getenv("TURNSTILE_TEST_POSTGRES_URL");
  if (!url || !*url) return std::nullopt;
  return own_database(url);
}

std::string with_parameter(const std::string& url, const std::string& key, const std::string& value) {
  std::string out = url + (url.find('?') == std::string::npos ? '?' : '&') + key + '=';
  for (const char c : value) {
    const bool plain =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
    if (plain) {
      out += c;
      continue;
    }
    const auto byte = static_cast<unsigned char>(c);
    out += '%';
    out += "0123456789ABCDEF"[byte >> 4];
    out += "0123456789ABCDEF"[byte & 15];
  }
  return out;
}

Sql::Sql(const std::string& url) : connection_(PQconnectdb(url.c_str())) {
  if (PQstatus(connection_) == CONNECTION_OK) {
    exec("SET client_min_messages = warning");
    return;
  }
  const std::string problem = PQerrorMessage(connection_);
  PQfinish(connection_);
  throw std::runtime_error(problem);
}

Sql::~Sql() { PQfinish(connection_); }

std::vector<std::string> Sql::column(const std::string& sql) {
  PGresult* result = PQexec(connection_, sql.c_str());
  const auto status = PQresultStatus(result);
  std::vector<std::string> cells;
  for (int row = 0; row < PQntuples(result); ++row) cells.emplace_back(PQgetvalue(result, row, 0));
  const std::string problem = PQresultErrorMessage(result);
  PQclear(result);
  if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK) throw std::runtime_error(sql + ": " + problem);
  return cells;
}

std::string Sql::one(const std::string& sql) {
  const auto cells = column(sql);
  if (cells.empty()) throw std::runtime_error(sql + ": no row");
  return cells[0];
}

int Sql::backend_pid() const { return PQbackendPID(connection_); }

void migrate(const std::string& url, const std::string& schema) {
  PostgresSettings settings;
  settings.url = Secret(url);
  settings.schema = schema;
  postgres::migrate_up(settings, postgres::embedded_migration_list());
}

void make_schema(const std::string& name) {
  Sql sql(postgres_url().value());
  if (!take_migrated_schema(sql, name)) migrate(postgres_url().value(), name);
}

PostgresSchema::PostgresSchema(bool migrated)
    : name_(unique_name()),
      url_(with_parameter(postgres_url().value(), "options", "-csearch_path=" + name_)),
      sql_(url_) {
  if (migrated) make_schema(name_);
}

std::string url_through(const std::string& url, int port) {
  return with_parameter(with_parameter(url, "host", "127.0.0.1"), "port", std::to_string(port));
}

TcpProxy proxy_to(Sql& sql) {
  return {sql.one("SELECT host(inet_server_addr())"), std::stoi(sql.one("SELECT inet_server_port()"))};
}

PostgresSettings PostgresSchema::settings() const {
  PostgresSettings settings;
  settings.url = Secret(url_);
  settings.schema = name_;
  return settings;
}

PostgresSettings PostgresSchema::settings_through(int port) const {
  PostgresSettings through = settings();
  through.url = Secret(url_through(url_, port));
  return through;
}

}  // namespace turnstile::test
