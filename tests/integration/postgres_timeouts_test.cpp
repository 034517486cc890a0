// The timeouts of a transaction with one message: the session has them of its own, if it belongs to no other client.

#include "tests/integration/postgres_fixture.hpp"
#include "tests/support/own_pgbouncer.hpp"

namespace turnstile::test {
namespace {

class PostgresTimeouts : public PostgresTest {
 protected:
  /// In milliseconds, for locks and idle. A statement that calls a function, or SHOW, would let the session be reset.
  static std::string timeouts(Transaction& transaction) {
    const auto of = [&](const std::string& name) {
      return transaction.exec("SELECT setting FROM pg_catalog.pg_settings WHERE name = '" + name + "'")
          .at(0, 0)
          .value_or("");
    };
    return of("lock_timeout") + " " + of("idle_in_transaction_session_timeout");
  }
  /// What a transaction with one message has at its start.
  std::string timeouts_of(const std::string& id) {
    begin(id);
    return timeouts(tx());
  }
};

TEST_F(PostgresTimeouts, each_transaction_has_them_whatever_a_handler_did) {
  EXPECT_EQ(timeouts_of("first"), "5000 30000");
  const int pid = backend();
  session_->commit();
  EXPECT_EQ(timeouts_of("second"), "5000 30000");
  tx().exec(
      "SELECT set_config('lock_timeout', '1h', false), set_config('idle_in_transaction_session_timeout', '2h', false)");
  session_->commit();
  EXPECT_EQ(timeouts_of("after a change that is undone"), "5000 30000");
  session_->commit();
  EXPECT_EQ(timeouts_of("of the session again"), "5000 30000");
  EXPECT_EQ(backend(), pid) << "the connection was dropped";
  session_->rollback();
}

/// No statement of the handler tells of the change.
TEST_F(PostgresTimeouts, a_change_that_a_function_hides_lasts_a_second_at_most) {
  sql().exec(R"(
CREATE FUNCTION mischief() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM set_config('lock_timeout', '0', false), set_config('idle_in_transaction_session_timeout', '0', false);
  RETURN NEW;
END $$;
CREATE TRIGGER mischief BEFORE INSERT ON effect FOR EACH ROW EXECUTE FUNCTION mischief())");
  for (const char* id : {"first", "second"}) {
    EXPECT_EQ(timeouts_of(id), "5000 30000");
    session_->commit();
  }
  begin("third");
  tx().exec("INSERT INTO effect (what) VALUES ('x')");
  EXPECT_EQ(timeouts(tx()), "0 0");
  session_->commit();
  int transactions = 0;
  EXPECT_TRUE(eventually([&] {
    const std::string now = timeouts_of("later " + std::to_string(++transactions));
    session_->commit();
    return now == "5000 30000";
  }));
}

TEST_F(PostgresTimeouts, other_handlers_have_other_ones_on_the_same_connection) {
  EXPECT_EQ(timeouts_of("first"), "5000 30000");
  const int pid = backend();
  session_->commit();
  ports::InboxScope slow = scope();
  slow.idle_timeout = std::chrono::minutes(10);
  const ports::InboxEntry entry{MessageId::from("slow"), 7, std::nullopt};
  session_->begin(slow, {&entry, 1});
  EXPECT_EQ(timeouts(tx()), "5000 600000");
  EXPECT_EQ(backend(), pid) << "the connection was dropped";
  session_->commit();
  EXPECT_EQ(timeouts_of("last"), "5000 30000");
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
    begin(mode + std::string("first"));
    const std::string pid = std::to_string(backend());
    session_->commit();
    for (const char* id : {"second", "third"}) {
      EXPECT_EQ(timeouts_of(mode + std::string(id)), "5000 30000") << mode;
      session_->commit();
    }
    session_.reset();
    store_.reset();
    // Other clients of the pooler get the sessions of the server that were returned.
    std::vector<std::unique_ptr<Sql>> others;
    std::string seen;
    while (seen != pid && others.size() < 6) {
      others.push_back(std::make_unique<Sql>(bouncer.url()));
      others.back()->exec("BEGIN");
      seen = others.back()->one("SELECT pg_backend_pid()");
    }
    EXPECT_EQ(seen, pid) << mode;
    EXPECT_EQ(others.back()->one("SHOW lock_timeout"), "0") << mode;
    EXPECT_EQ(others.back()->one("SHOW idle_in_transaction_session_timeout"), "0") << mode;
  }
}

}  // namespace
}  // namespace turnstile::test
