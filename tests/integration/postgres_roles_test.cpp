// The role with the least rights can do all that the store does, and nothing that would undo it.

#include "tests/integration/postgres_fixture.hpp"
#include "turnstile/postgres/guards.hpp"

namespace turnstile::test {
namespace {

using ::testing::HasSubstr;

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

}  // namespace
}  // namespace turnstile::test
