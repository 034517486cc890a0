#include "tests/support/own_database.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <stdexcept>

#include "tests/support/postgres_schema.hpp"
#include "turnstile/postgres/migrations.hpp"

namespace turnstile::test {

namespace {

constexpr const char* kSchema = "migrated_before";

/// The URL of the same server, for another database. In the path, where scratch-pgbouncer looks for it.
std::string with_database(const std::string& url, const std::string& name) {
  const auto host = url.find("://");
  if (host == std::string::npos) return with_parameter(url, "dbname", name);
  const auto parameters = std::min(url.find('?'), url.size());
  const auto path = std::min(url.find('/', host + 3), parameters);
  return url.substr(0, path) + "/" + name + url.substr(parameters);
}

/// Other migrations have another original, so a server may outlive a change of them.
std::string original_name() {
  std::string checksums;
  for (const auto& migration : postgres::embedded_migration_list()) checksums += migration.checksum;
  return "migrated_" + std::to_string(std::hash<std::string>{}(checksums));
}

void make_schema_to_copy(const std::string& url) {
  migrate(url, kSchema);
  if (Sql(url).one(std::string("SELECT count(*) FROM pg_proc WHERE prosrc LIKE '%") + kSchema + "%'") != "0")
    throw std::runtime_error(
        "a function's text names its schema, so a test cannot rename it: tests/support/own_database.cpp");
}

/// One process makes the original, and the others wait for it.
std::string original(Sql& server, const std::string& server_url) {
  const std::string name = original_name();
  server.exec("SELECT pg_advisory_lock(hashtext('" + name + "'))");
  if (server.column("SELECT 1 FROM pg_database WHERE datname = '" + name + "'").empty()) {
    const std::string unfinished = name + "_unfinished";
    server.exec("DROP DATABASE IF EXISTS " + unfinished + " WITH (FORCE)");
    server.exec("CREATE DATABASE " + unfinished + " TEMPLATE template0");
    make_schema_to_copy(with_database(server_url, unfinished));
    server.exec("ALTER DATABASE " + unfinished + " RENAME TO " + name);
  }
  server.exec("SELECT pg_advisory_unlock(hashtext('" + name + "'))");
  return name;
}

class OwnDatabase {
 public:
  explicit OwnDatabase(const std::string& server_url)
      : server_(server_url),
        name_("test_" + std::to_string(process_) + "_" +
              std::to_string(std::chrono::steady_clock::now().time_since_epoch().count())),
        url_(with_database(server_url, name_)) {
    server_.exec("CREATE DATABASE " + name_ + " TEMPLATE " + original(server_, server_url));
  }
  ~OwnDatabase() {
    if (getpid() != process_) return;  // a child that a test has forked
    try {
      server_.exec("DROP DATABASE " + name_ + " WITH (FORCE)");
    } catch (const std::exception&) {
      // The test has stopped the server, whose folder is deleted too.
    }
  }
  OwnDatabase(const OwnDatabase&) = delete;
  OwnDatabase& operator=(const OwnDatabase&) = delete;

  [[nodiscard]] const std::string& url() const noexcept { return url_; }

 private:
  pid_t process_ = getpid();
  Sql server_;
  std::string name_;
  std::string url_;
};

}  // namespace

std::string own_database(const std::string& server_url) {
  static const OwnDatabase own(server_url);
  return own.url();
}

bool take_migrated_schema(Sql& sql, const std::string& name) {
  const std::string spare = kSchema;
  if (sql.column("SELECT 1 FROM pg_namespace WHERE nspname = '" + spare + "'").empty()) return false;
  sql.exec("ALTER SCHEMA " + spare + " RENAME TO " + name);
  sql.exec("UPDATE pg_proc SET proconfig = (SELECT array_agg(replace(setting, '" + spare + "', '" + name +
           "')) FROM unnest(proconfig) AS setting) WHERE pronamespace = '" + name +
           "'::regnamespace AND proconfig IS NOT NULL");
  return true;
}

}  // namespace turnstile::test
