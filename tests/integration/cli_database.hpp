#pragma once
// Each test gets a schema of its own, with rows, in the scratch PostgreSQL of ./dev test.

#include <gtest/gtest.h>
#include <unistd.h>

#include <pqxx/pqxx>
#include <string>

#include "tests/support/cli.hpp"
#include "tests/support/postgres_role.hpp"
#include "turnstile/config.hpp"

namespace turnstile::test {

/// Skips the test if there is no server, as all integration tests do. ./dev test starts one.
class CliDatabase : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!postgres_url()) GTEST_SKIP() << kNoPostgres;
    url_ = *postgres_url();
    static int count = 0;
    schema_ = "cli_" + std::to_string(getpid()) + "_" + std::to_string(++count);
    cli_.environment()["TURNSTILE_POSTGRES_URL"] = url_;
    cli_.environment()["TURNSTILE_POSTGRES_SCHEMA"] = schema_;
  }

  void TearDown() override {
    if (url_.empty()) return;
    if (!consumer_.empty()) sql("DROP OWNED BY " + consumer_ + "; DROP ROLE " + consumer_);
  }

  void migrate() { make_schema(schema_); }

  /// Runs the statement in the test's schema. Returns the first cell of the answer, if there is one.
  std::string sql(const std::string& statement) {
    pqxx::connection connection(url_);
    pqxx::work work(connection);
    work.exec("SET LOCAL client_min_messages = warning; SET LOCAL search_path = " + schema_);
    const pqxx::result rows = work.exec(statement);
    std::string cell;
    if (!rows.empty() && rows.columns() > 0 && !rows[0][0].is_null()) cell = rows[0][0].c_str();
    work.commit();
    return cell;
  }

  /// Registers handler 1 "charge" on payments[3] (slot 1), and handler 2 "mail".
  void register_handlers() {
    sql("INSERT INTO handler (id, name) VALUES (1, 'charge'), (2, 'mail'); "
        "INSERT INTO fence (consumer_group, topic, partition, epoch) VALUES ('billing', 'payments', 3, 7); "
        "INSERT INTO watermark (slot, watermark) VALUES (1, 1042)");
  }

  /// The database's URL for a role with the rights of migrations/roles.sql and no others.
  std::string consumer_url() {
    if (consumer_.empty()) {
      consumer_ = schema_ + "_consumer";
      sql("CREATE ROLE " + consumer_ + " LOGIN PASSWORD 'app'");
      sql(least_rights(schema_, consumer_));
    }
    return with_parameter(with_parameter(url_, "user", consumer_), "password", "app");
  }

  void see(int handler, const MessageId& id, const std::string& seen_at = "now()") {
    sql("INSERT INTO inbox (handler, id, slot, record_offset, seen_at) VALUES (" + std::to_string(handler) + ", '" +
        id.text() + "', 1, 1041, " + seen_at + ")");
  }

  Cli cli_;
  std::string url_;
  std::string schema_;
  std::string consumer_;  ///< a role; empty until a test has asked for it
};

}  // namespace turnstile::test
