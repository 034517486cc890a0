// The role with the least rights can do all that the store does, and nothing that would undo it. A handler that leaves
// another role in its transaction, or makes it read-only, fails its message. A missing right is an outage.

#include <functional>
#include <pqxx/result>
#include <pqxx/transaction_base>

#include "tests/integration/postgres_fixture.hpp"
#include "turnstile/postgres/guards.hpp"
#include "turnstile/postgres/pqxx.hpp"

namespace turnstile::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class PostgresRoles : public PostgresRoleTest {
 protected:
  void do_all_that_the_store_does() {
    open(app_->settings());
    store_->check_schema();
    const TopicPartition at[] = {{"payments", 0}, {"payments", 7}};
    fence_ = store_->partitions().claim_partitions("group", at, std::chrono::seconds(5)).at(0).fence;
    const ports::InboxEntry entries[] = {{MessageId::from("a"), 1, 1}, {MessageId::from("a"), 2, 2}};
    EXPECT_THAT(session_->begin(scope(), entries),
                ::testing::ElementsAre(ports::Admission::fresh, ports::Admission::mismatch));
    session_->commit();
    EXPECT_EQ(store_->first_group(handler_, "group"), "group");
    const ports::WatermarkUpdate update{fence_, 3};
    for (int i = 0; i < 2; ++i) store_->partitions().advance_watermarks({&update, 1});
    EXPECT_EQ(store_->partitions().begin_incarnation(fence_, 0, 0), 1);
    ports::DeadMessage dead;
    dead.handler = handler_;
    dead.fence = fence_;
    EXPECT_TRUE(store_->dead_letters().record_dead(dead));
    EXPECT_THAT(store_->dead_letters().dead_between(handler_, fence_, 0, 0), ::testing::ElementsAre(0));
    EXPECT_EQ(session_->settled(handler_, {}, std::vector{MessageId::from("a")}), std::vector{true});
    const postgres::Table tokens{schema_->name(), "one_time_token"};
    session_->begin(scope(), {});
    const std::string token = postgres::one_time_token::issue(tx(), "ada", std::chrono::seconds(60), tokens);
    EXPECT_TRUE(postgres::one_time_token::redeem(tx(), token, "ada", tokens).applied());
    EXPECT_EQ(postgres::one_time_token::purge(tx(), std::chrono::seconds(0), 1, tokens), 0);
    session_->commit();
  }
};

TEST_F(PostgresRoles, the_rights_in_the_file_are_enough_and_no_more) {
  app_->grant_from_file();
  do_all_that_the_store_does();
  Sql app(app_->url());
  for (const char* statement :
       {"DELETE FROM inbox", "UPDATE inbox SET record_offset = 0", "TRUNCATE inbox", "DELETE FROM dead",
        "UPDATE dead SET reason = ''", "DELETE FROM fence", "UPDATE fence SET topic = ''", "DELETE FROM handler",
        "UPDATE handler SET name = ''", "UPDATE one_time_token SET expires_at = now()",
        "INSERT INTO migration VALUES (2, 'x')", "DROP TABLE inbox", "CREATE TABLE mine (n integer)",
        "ALTER TABLE inbox ADD COLUMN n integer", "SELECT * FROM effect"}) {
    try {
      app.exec(statement);
      ADD_FAILURE() << "was allowed: " << statement;
    } catch (const std::runtime_error& error) {
      const std::string text = error.what();
      EXPECT_TRUE(text.find("permission denied") != std::string::npos ||
                  text.find("must be owner") != std::string::npos)
          << text;
    }
  }
}

TEST_F(PostgresRoles, a_missing_right_names_the_grants_that_help) {
  const std::string message =
      message_of<StoreUnavailable>([&] { postgres::open_store(app_->settings())->check_schema(); });
  EXPECT_THAT(message, HasSubstr("the role " + app_->name()));
  const auto grants = message.find("GRANT USAGE ON SCHEMA");
  ASSERT_NE(grants, std::string::npos) << message;
  sql().exec(message.substr(grants));
  do_all_that_the_store_does();
}

TEST_F(PostgresRoles, a_right_taken_away_while_running_stops_the_store_and_not_the_message) {
  app_->grant_from_file();
  open(app_->settings());
  begin("a");
  session_->commit();
  sql().exec("REVOKE INSERT ON inbox FROM " + app_->name());
  EXPECT_THAT(message_of<StoreUnavailable>([&] { begin("b"); }), HasSubstr("GRANT SELECT, INSERT ON"));
  app_->grant_from_file();
  begin("b");
  // In a handler's own statement, the missing right is the handler's problem.
  EXPECT_EQ(sqlstate_of([&] { tx().exec("SELECT * FROM effect"); }), "42501");
  session_->rollback();
}

const std::string kOtherRole = "SELECT set_config('role', 'pg_monitor', true)";
const std::string kOwnRole = "SELECT set_config('role', 'none', true)";
const std::string kReadOnly = "SELECT set_config('transaction_read_only', 'on', true)";

class PostgresChangedRole : public PostgresRoleTest {
 protected:
  void publish() {
    OwnedMessage message;
    message.topic = "orders";
    session_->publish(message, MessageId::from("published " + std::to_string(++published_)));
  }
  void respond() { session_->respond(MessageId::from("a0"), "body"); }
  std::string published() { return sql().one("SELECT count(*) FROM outbox"); }
  /// `second` is the work of the second of two messages. Expects that the second one is named as the one that failed.
  void expect_failure_of_second(const std::function<void()>& second) {
    begin("a", 2);
    tx().exec("INSERT INTO effect (what) VALUES ('first')");
    try {
      session_->at_message(1);
      second();
      session_->commit();
      ADD_FAILURE() << "it was committed";
    } catch (const DeferredSqlError& error) {
      EXPECT_EQ(error.message_index, 1U);
      EXPECT_EQ(error.sqlstate, "2D000");
      EXPECT_THAT(error.what(), HasSubstr("restore the role"));
      EXPECT_EQ(session_->standing(), ports::Standing::failed);
    }
    session_->rollback();
    EXPECT_THAT(effects(), IsEmpty());
    EXPECT_EQ(ids(), "0");
  }
  void expect_outage(const std::function<void()>& handle) {
    const std::string message = message_of<StoreUnavailable>([&] {
      begin("a");
      handle();
      session_->commit();
    });
    EXPECT_THAT(message, HasSubstr("42501"));
    session_->rollback();
  }

  int published_ = 0;
};

TEST_F(PostgresChangedRole, fails_the_message_that_left_it) {
  for (const std::string& change :
       {kOtherRole, kReadOnly, std::string("SELECT set_config('session_authorization', 'pg_monitor', true)")}) {
    SCOPED_TRACE(change);
    for (const auto& own :
         {std::function<void()>([&] { publish(); }), std::function<void()>([&] { respond(); }),
          std::function<void()>([&] { session_->responses(handler_, std::vector{MessageId::from("b")}); }),
          std::function<void()>([&] {
            ports::RetryChanges changes;
            changes.settled = {{1, 1}};
            session_->write_retries(changes);
          }),
          std::function<void()>([&] {
            const ports::RetryQuestion question{MessageId::from("a1"), std::nullopt, std::nullopt};
            session_->retry_turns({&question, 1});
          })}) {
      expect_failure_of_second([&] {
        tx().exec(change);
        own();
      });
      expect_failure_of_second([&] {
        tx().defer(change);
        own();
      });
      expect_failure_of_second([&] {
        postgres::native(tx()).exec(change);
        own();
      });
    }
  }
}

TEST_F(PostgresChangedRole, is_found_after_other_statements_of_the_handler) {
  expect_failure_of_second([&] {
    tx().exec("SELECT set_config('app.tenant', 'somebody', true)");
    publish();
    tx().exec("SAVEPOINT mine");
    tx().exec("SELECT set_config('app.tenant', 'nobody', true)");
    tx().exec("ROLLBACK TO mine");
    tx().exec(kOtherRole);
    publish();
  });
  expect_failure_of_second([&] {
    tx().exec(kOtherRole);
    tx().exec("SAVEPOINT mine");
    tx().exec(kOwnRole);
    publish();
    tx().exec("ROLLBACK TO mine");
    publish();
  });
  expect_failure_of_second([&] {
    tx().defer("SELECT set_config('app.tenant', 'somebody', true)");
    EXPECT_TRUE(session_->undo_message());
    tx().defer(kOtherRole);
    publish();
  });
  expect_failure_of_second([&] {
    pqxx::transaction_base& native = postgres::native(tx());
    session_->responses(handler_, std::vector{MessageId::from("b")});
    native.exec("SET LOCAL ROLE pg_monitor");
    publish();
  });
}

TEST_F(PostgresChangedRole, is_no_failure_where_the_handler_restores_it) {
  sql().exec("GRANT INSERT ON effect TO pg_monitor; GRANT USAGE ON SCHEMA " + schema_->name() + " TO pg_monitor");
  begin("a", 2);
  tx().exec(kOtherRole);
  tx().exec("INSERT INTO effect (number, what) VALUES (1, current_user)");
  tx().exec(kOwnRole);
  publish();
  respond();
  tx().exec("SAVEPOINT mine");
  tx().exec(kOtherRole);
  tx().exec("ROLLBACK TO mine");
  publish();
  session_->at_message(1);
  pqxx::transaction_base& native = postgres::native(tx());
  native.exec("SET LOCAL ROLE pg_monitor");
  native.exec("RESET ROLE");
  publish();
  session_->commit();
  EXPECT_THAT(effects(), ElementsAre("pg_monitor"));
  EXPECT_EQ(published(), "3");
  EXPECT_EQ(ids(), "2");
}

TEST_F(PostgresChangedRole, fails_a_message_that_ends_with_it) {
  for (const std::string& change :
       {kOtherRole, kReadOnly, std::string("DO $$ BEGIN PERFORM Set_Config('role', 'pg_monitor', true); END $$")}) {
    SCOPED_TRACE(change);
    expect_failure_of_second([&] { tx().exec(change); });
    expect_failure_of_second([&] { tx().defer(change); });
    expect_failure_of_second([&] { postgres::native(tx()).exec(change); });
  }
}

TEST_F(PostgresChangedRole, is_not_the_role_of_the_next_message) {
  sql().exec("GRANT INSERT ON effect TO pg_monitor; GRANT USAGE ON SCHEMA " + schema_->name() + " TO pg_monitor");
  const std::vector<std::function<void()>> leavers{[&] { tx().exec(kOtherRole); }, [&] { tx().defer(kOtherRole); },
                                                   [&] { postgres::native(tx()).exec(kOtherRole); },
                                                   [&] {
                                                     tx().exec("SAVEPOINT mine");
                                                     tx().exec(kOtherRole);
                                                   }};
  for (const auto& leave : leavers) {
    begin("a", 3);
    session_->at_message(1);
    leave();
    try {
      session_->at_message(2);
      tx().exec("INSERT INTO effect (what) VALUES (current_user)");
      tx().exec(kOwnRole);
      session_->commit();
      ADD_FAILURE() << "it ran under the other role";
    } catch (const DeferredSqlError& error) {
      EXPECT_EQ(error.message_index, 1U);
      EXPECT_EQ(error.sqlstate, "2D000");
    }
    session_->rollback();
    EXPECT_THAT(effects(), IsEmpty());
    EXPECT_EQ(ids(), "0");
  }
}

/// The role in which the URL's connections begin is their own.
TEST_F(PostgresChangedRole, is_compared_with_the_role_of_the_connection) {
  app_->grant_from_file();
  PostgresSettings settings = schema_->settings();
  settings.url = Secret(with_parameter(settings.url.reveal(), "options", "-c role=" + app_->name()));
  open(settings);
  begin("a");
  EXPECT_EQ(tx().exec("SELECT current_user").at(0, 0), app_->name());
  tx().exec("SELECT set_config('app.tenant', 'somebody', true)");
  publish();
  session_->commit();
  EXPECT_EQ(published(), "1");
  begin("b");
  tx().exec("SELECT set_config('role', 'none', true)");
  publish();
  EXPECT_EQ(sqlstate_of([&] { session_->commit(); }), "2D000");
}

TEST_F(PostgresChangedRole, is_no_reason_where_a_right_was_taken_away) {
  app_->grant_from_file();
  open(app_->settings());
  sql().exec("REVOKE INSERT ON outbox FROM " + app_->name());
  expect_outage([&] { publish(); });
  // Such a statement could have changed the role.
  expect_outage([&] {
    tx().exec("SELECT pg_sleep(0)");
    publish();
  });
  expect_outage([&] {
    postgres::native(tx()).exec("SELECT 1");
    publish();
  });
  app_->grant_from_file();
  begin("a");
  tx().exec("SELECT pg_sleep(0)");
  sql().exec("REVOKE USAGE ON SCHEMA " + schema_->name() + " FROM " + app_->name());
  publish();
  EXPECT_THAT(message_of<StoreUnavailable>([&] { session_->commit(); }), HasSubstr("42501"));
  EXPECT_THAT(message_of<StoreUnavailable>([&] { begin("b"); }), HasSubstr("42501"));
  app_->grant_from_file();
  begin("b");
  publish();
  session_->commit();
  EXPECT_EQ(published(), "1");
}

TEST_F(PostgresChangedRole, is_no_reason_where_a_table_of_the_frameworks_refuses) {
  sql().exec(
      "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = TG_ARGV[0]; END $$");
  for (const char* state : {"42501", "25006", "22P02"}) {
    sql().exec("CREATE TRIGGER refusing BEFORE INSERT ON outbox EXECUTE FUNCTION refuse('" + std::string(state) + "')");
    begin("a");
    tx().exec("SELECT pg_sleep(0)");
    publish();
    EXPECT_THAT(message_of<StoreUnavailable>([&] { session_->commit(); }), HasSubstr(state));
    sql().exec("DROP TRIGGER refusing ON outbox");
  }
}

}  // namespace
}  // namespace turnstile::test
