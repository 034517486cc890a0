#pragma once
// A role of the server that does not own the schema.

#include <fstream>
#include <sstream>
#include <string>
#include <utility>

#include "tests/support/postgres_schema.hpp"

namespace turnstile::test {

/// migrations/roles.sql with its variables replaced, as psql does it.
inline std::string least_rights(const std::string& schema, const std::string& role) {
  std::ifstream in(TURNSTILE_SOURCE_DIR "/migrations/roles.sql");
  std::stringstream text;
  text << in.rdbuf();
  std::string script = text.str();
  for (const auto& [variable, value] : {std::pair{std::string(":\"schema\""), schema}, {":\"role\"", role}}) {
    for (auto at = script.find(variable); at != std::string::npos; at = script.find(variable))
      script.replace(at, variable.size(), value);
  }
  return script;
}

/// A role that may only log in. The destructor drops it, with its objects and rights.
class PostgresRole {
 public:
  explicit PostgresRole(PostgresSchema& schema) : schema_(schema), name_(schema.name() + "_app") {
    schema_.sql().exec("CREATE ROLE " + name_ + " LOGIN PASSWORD 'app'");
  }
  ~PostgresRole() { schema_.sql().exec("DROP OWNED BY " + name_ + "; DROP ROLE " + name_); }
  PostgresRole(const PostgresRole&) = delete;
  PostgresRole& operator=(const PostgresRole&) = delete;

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] std::string url() const { return as_role(schema_.url()); }
  [[nodiscard]] PostgresSettings settings() const { return as_role(schema_.settings()); }
  [[nodiscard]] PostgresSettings settings_through(int port) const { return as_role(schema_.settings_through(port)); }
  void grant_from_file() { schema_.sql().exec(least_rights(schema_.name(), name_)); }

 private:
  [[nodiscard]] std::string as_role(const std::string& url) const {
    return with_parameter(with_parameter(url, "user", name_), "password", "app");
  }
  [[nodiscard]] PostgresSettings as_role(PostgresSettings settings) const {
    settings.url = Secret(as_role(settings.url.reveal()));
    return settings;
  }

  PostgresSchema& schema_;
  std::string name_;
};

}  // namespace turnstile::test
