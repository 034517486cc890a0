#pragma once
// A store on a schema of its own, an empty schema, and roles, for behaviour that only the real PostgreSQL has.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/eventually.hpp"
#include "tests/support/postgres_role.hpp"
#include "tests/support/postgres_schema.hpp"
#include "turnstile/error.hpp"
#include "turnstile/postgres/store.hpp"

namespace turnstile::test {

class PostgresTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!postgres_url()) GTEST_SKIP() << kNoPostgres;
    schema_ = std::make_unique<PostgresSchema>();
    sql().exec("CREATE TABLE effect (number bigserial PRIMARY KEY, what text)");
    open(schema_->settings());
  }
  void open(const PostgresSettings& settings) {
    store_ = postgres::open_store(settings);
    handler_ = store_->register_handler("charge");
    const TopicPartition at{"payments", 0};
    fence_ = store_->partitions().claim_partitions("group", {&at, 1}, std::chrono::seconds(5)).at(0).fence;
    session_ = store_->open_session();
  }
  Sql& sql() { return schema_->sql(); }
  [[nodiscard]] ports::InboxScope scope() const {
    return {handler_, fence_, std::chrono::seconds(5), handler_timeout_};
  }
  /// Begins a transaction that takes in `count` ids named after `prefix`.
  std::vector<ports::Admission> begin(const std::string& prefix, std::size_t count = 1) {
    std::vector<ports::InboxEntry> entries;
    for (std::size_t i = 0; i < count; ++i) {
      entries.push_back({MessageId::from(prefix + std::to_string(i)), static_cast<Offset>(i), std::nullopt});
    }
    return session_->begin(scope(), entries);
  }
  Transaction& tx() { return session_->transaction(); }
  int backend() { return tx().exec("SELECT pg_backend_pid()").get<int>(0, 0); }
  bool gone(int backend) {
    return eventually(
        [&] { return sql().column("SELECT 1 FROM pg_stat_activity WHERE pid = " + std::to_string(backend)).empty(); });
  }
  std::vector<std::string> effects() { return sql().column("SELECT what FROM effect ORDER BY number"); }
  std::string ids() { return sql().one("SELECT count(*) FROM inbox"); }

  std::unique_ptr<PostgresSchema> schema_;
  std::shared_ptr<ports::Store> store_;
  std::unique_ptr<ports::InboxSession> session_;
  HandlerId handler_;
  Fence fence_;
  std::chrono::seconds handler_timeout_{30};
};

/// A schema that is still empty.
class EmptySchemaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!postgres_url()) GTEST_SKIP() << kNoPostgres;
    schema_ = std::make_unique<PostgresSchema>(false);
    settings_ = schema_->settings();
  }
  Sql& sql() { return schema_->sql(); }

  std::unique_ptr<PostgresSchema> schema_;
  PostgresSettings settings_;
};

/// The same store. Its role has the least rights after `app_` is granted to it.
class PostgresRoleTest : public PostgresTest {
 protected:
  void SetUp() override {
    PostgresTest::SetUp();
    if (!IsSkipped()) app_.emplace(*schema_);
  }
  void TearDown() override {
    session_.reset();
    store_.reset();
    app_.reset();
  }

  std::optional<PostgresRole> app_;
};

/// The message of the error that `call` throws. Fails the test if `call` throws another error, or none.
template <class Expected, class Call>
std::string message_of(Call call) {
  try {
    call();
  } catch (const Expected& error) {
    return error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "another error: " << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

/// The same for SqlError. Returns its SQLSTATE.
template <class Call>
std::string sqlstate_of(Call call) {
  try {
    call();
  } catch (const SqlError& error) {
    return error.sqlstate;
  } catch (const std::exception& error) {
    return std::string("another error: ") + error.what();
  }
  return "none";
}

}  // namespace turnstile::test
