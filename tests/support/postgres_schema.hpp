#pragma once
// A separate schema for a test, in a database of its process, in the PostgreSQL that TURNSTILE_TEST_POSTGRES_URL names.

#include <libpq-fe.h>

#include <optional>
#include <string>
#include <vector>

#include "tests/support/tcp_proxy.hpp"
#include "turnstile/config.hpp"

namespace turnstile::test {

/// The URL of this process's database (own_database.hpp). Absent if there is no server; the test must then skip.
std::optional<std::string> postgres_url();
inline constexpr const char* kNoPostgres =
    "needs PostgreSQL: set TURNSTILE_TEST_POSTGRES_URL (./dev test does, with a server of its own)";
/// The URL with one more parameter, the value percent-encoded.
std::string with_parameter(const std::string& url, const std::string& key, const std::string& value);

/// The URL of the same database through a proxy on 127.0.0.1.
std::string url_through(const std::string& url, int port);

/// A plain connection, to read data and to act as a concurrent transaction. Every call blocks. An error throws
/// std::runtime_error.
class Sql {
 public:
  explicit Sql(const std::string& url);
  ~Sql();
  Sql(const Sql&) = delete;
  Sql& operator=(const Sql&) = delete;

  /// The first column of the result.
  std::vector<std::string> column(const std::string& sql);
  void exec(const std::string& sql) { column(sql); }
  /// The first cell of the result.
  std::string one(const std::string& sql);
  [[nodiscard]] int backend_pid() const;

 private:
  PGconn* connection_;
};

/// A proxy to the server of this connection.
TcpProxy proxy_to(Sql& sql);

/// Runs all migrations in this schema.
void migrate(const std::string& url, const std::string& schema);
/// A schema of that name in the process's database, in which all migrations have run.
void make_schema(const std::string& name);

/// Dropped with the process's database.
class PostgresSchema {
 public:
  /// Not even created if `migrated` is false.
  explicit PostgresSchema(bool migrated = true);
  PostgresSchema(const PostgresSchema&) = delete;
  PostgresSchema& operator=(const PostgresSchema&) = delete;

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  /// A URL that finds unqualified names in the schema.
  [[nodiscard]] const std::string& url() const noexcept { return url_; }
  [[nodiscard]] PostgresSettings settings() const;
  /// As settings(), but through a proxy on 127.0.0.1.
  [[nodiscard]] PostgresSettings settings_through(int port) const;
  Sql& sql() noexcept { return sql_; }

 private:
  std::string name_;
  std::string url_;
  Sql sql_;
};

}  // namespace turnstile::test
