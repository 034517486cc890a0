// The timeouts of a transaction with one message: the session has them of its own, if it belongs to no other client.

#include "tests/integration/postgres_fixture.hpp"
#include "tests/support/own_pgbouncer.hpp"

namespace turnstile::test {
namespace {

class PostgresTimeouts : public PostgresTest {
 protected:
  static std::string timeouts(Transaction& transaction) {
    return transaction
        .exec("SELECT current_setting('lock_timeout') || ' ' || current_setting('idle_in_transaction_session_timeout')")
        .at(0, 0)
        .value_or("NULL");
  }
  /// What a transaction with one message has at its start.
  std::string timeouts_of(const std::string& id) {
    begin(id);
    return timeouts(tx());
  }
};

TEST_F(PostgresTimeouts, each_transaction_has_them_whatever_a_handler_did) {
  EXPECT_EQ(timeouts_of("first"), "5s 30s");
  const int pid = backend();
  session_->commit();
  EXPECT_EQ(timeouts_of("second"), "5s 30s");
  tx().exec(
      "SELECT set_config('lock_timeout', '1h', false), set_config('idle_in_transaction_session_timeout', '2h', false)");
  session_->commit();
  EXPECT_EQ(timeouts_of("after a change that is undone"), "5s 30s");
  session_->commit();
  EXPECT_EQ(timeouts_of("of the session again"), "5s 30s");
  EXPECT_EQ(backend(), pid) << "the connection was dropped";
  session_->rollback();
}

/// No statement of the handler tells of the change.
TEST_F(PostgresTimeouts, a_change_that_a_function_hides_lasts_a_second_at_most) {
  sql().exec(R"(
CREATE FUNCTION mischief() RETURNS integer LANGUAGE plpgsql AS $$
BEGIN
  PERFORM set_config('lock_timeout', '0', false), set_config('idle_in_transaction_session_timeout', '0', false);
  RETURN 1;
END $$)");
  EXPECT_EQ(timeouts_of("first"), "5s 30s");
  session_->commit();
  EXPECT_EQ(timeouts_of("second"), "5s 30s");
  tx().exec("SELECT mischief()");
  EXPECT_EQ(timeouts(tx()), "0 0");
  session_->commit();
  int transactions = 0;
  EXPECT_TRUE(eventually([&] {
    const std::string now = timeouts_of("later " + std::to_string(++transactions));
    session_->commit();
    return now == "5s 30s";
  }));
}

TEST_F(PostgresTimeouts, other_handlers_have_other_ones_on_the_same_connection) {
  EXPECT_EQ(timeouts_of("first"), "5s 30s");
  const int pid = backend();
  session_->commit();
  ports::InboxScope slow = scope();
  slow.idle_timeout = std::chrono::minutes(10);
  const ports::InboxEntry entry{MessageId::from("slow"), 7, std::nullopt};
  session_->begin(slow, {&entry, 1});
  EXPECT_EQ(timeouts(tx()), "5s 10min");
  EXPECT_EQ(backend(), pid) << "the connection was dropped";
  session_->commit();
  EXPECT_EQ(timeouts_of("last"), "5s 30s");
  session_->rollback();
}

/// A pooler lends the session to other clients (hazard: pooled-session).
TEST_F(PostgresTimeouts, a_session_of_a_pooler_keeps_its_own) {
  for (const char* mode : {"session", "transaction"}) {
    OwnPgBouncer bouncer(mode);
    if (bouncer.missing()) GTEST_SKIP() << "no PgBouncer: apt-get install pgbouncer";
    PostgresSettings settings = schema_->settings();
    settings.url = Secret(bouncer.url());
    settings.prepared_statements = std::string(mode) == "session";
    open(settings);
    EXPECT_EQ(timeouts_of(mode + std::string("first")), "5s 30s") << mode;
    const int pid = backend();
    session_->commit();
    EXPECT_EQ(timeouts_of(mode + std::string("second")), "5s 30s") << mode;
    session_->commit();
    session_.reset();
    store_.reset();
    // Other clients of the pooler get the sessions of the server that were returned.
    std::vector<std::unique_ptr<Sql>> others;
    std::string seen;
    while (seen != std::to_string(pid) && others.size() < 6) {
      others.push_back(std::make_unique<Sql>(bouncer.url()));
      others.back()->exec("BEGIN");
      seen = others.back()->one("SELECT pg_backend_pid()");
    }
    EXPECT_EQ(seen, std::to_string(pid)) << mode;
    EXPECT_EQ(others.back()->one("SHOW lock_timeout"), "0") << mode;
    EXPECT_EQ(others.back()->one("SHOW idle_in_transaction_session_timeout"), "0") << mode;
  }
}

}  // namespace
}  // namespace turnstile::test
