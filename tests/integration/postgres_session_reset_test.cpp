// Changes that a handler makes to the session of its connection are gone when another transaction gets that connection.

#include <pqxx/result>
#include <pqxx/transaction_base>

#include "tests/integration/postgres_fixture.hpp"
#include "tests/support/own_pgbouncer.hpp"
#include "turnstile/postgres/pqxx.hpp"

namespace turnstile::test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class PostgresSessionReset : public PostgresTest {
 protected:
  std::string one(const std::string& query) { return tx().exec(query).at(0, 0).value_or("NULL"); }
  /// The state that a session can have, as the open transaction sees it.
  std::string state() {
    return one(R"(
SELECT pg_catalog.concat_ws(' ',
         (SELECT count(*) FROM pg_catalog.pg_class WHERE relnamespace = pg_catalog.pg_my_temp_schema()),
         coalesce(nullif(pg_catalog.current_setting('app.tenant', true), ''), '-'), pg_catalog.current_setting('statement_timeout'), current_user,
         (SELECT count(*) FROM pg_catalog.pg_cursors WHERE is_holdable),
         (SELECT count(*) FROM pg_catalog.pg_listening_channels()),
         (SELECT count(*) FROM pg_catalog.pg_prepared_statements WHERE name NOT LIKE 'turnstile%' AND name NOT LIKE 'PGBOUNCER%'),
         (SELECT count(*) FROM pg_catalog.pg_locks WHERE locktype = 'advisory' AND pid = pg_catalog.pg_backend_pid())))");
  }
  void dirty() {
    tx().exec("CREATE TEMP TABLE effect (number bigserial, what text)");
    tx().exec("SELECT set_config('app.tenant', 'somebody', false)");
    tx().exec("SELECT set_config('statement_timeout', '59s', false)");
    tx().exec("SELECT set_config('role', 'pg_monitor', false)");
    tx().exec("SELECT set_config('role', 'none', true)");  // the ids are written by the role of the connection
    tx().exec("SELECT pg_advisory_lock(4711)");
    tx().exec("DECLARE kept CURSOR WITH HOLD FOR SELECT 1");
    tx().exec("LISTEN news");
    tx().exec("PREPARE mine AS SELECT 1");
  }
};

TEST_F(PostgresSessionReset, undoes_what_a_handler_did) {
  begin("before");
  const std::string clean = state();
  const int pid = backend();
  session_->commit();
  for (const bool committed : {true, false}) {
    begin(committed ? "a" : "b");
    dirty();
    EXPECT_NE(state(), clean);
    if (committed) session_->commit();
    else session_->rollback();
    begin(committed ? "c" : "d");
    EXPECT_EQ(state(), clean) << committed;
    EXPECT_EQ(backend(), pid) << "the connection was dropped";
    tx().exec("INSERT INTO effect (what) VALUES ('real')");
    session_->commit();
  }
  EXPECT_THAT(effects(), ElementsAre("real", "real"));
}

TEST_F(PostgresSessionReset, undoes_what_a_function_did) {
  sql().exec(R"(
CREATE FUNCTION report() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  CREATE TEMP TABLE effect (number bigserial, what text);
  PERFORM set_config('app.tenant', 'somebody', false), pg_advisory_lock(4711);
END $$)");
  begin("before");
  const std::string clean = state();
  session_->commit();
  for (const bool deferred : {false, true}) {
    begin(deferred ? "a" : "b");
    if (deferred) tx().defer("SELECT report()");
    else tx().exec("SELECT report()");
    session_->commit();
    begin(deferred ? "c" : "d");
    EXPECT_EQ(state(), clean) << deferred;
    session_->commit();
  }
}

TEST_F(PostgresSessionReset, undoes_what_libpqxx_did) {
  begin("before");
  const std::string clean = state();
  session_->commit();
  begin("a");
  postgres::native(tx()).exec(
      "SET app.tenant = 'somebody'; CREATE TEMP TABLE effect (what text); PREPARE mine AS SELECT 1");
  session_->commit();
  begin("b");
  EXPECT_EQ(state(), clean);
  session_->commit();
}

TEST_F(PostgresSessionReset, a_failed_commit_keeps_no_advisory_lock) {
  sql().exec("ALTER TABLE effect ADD CONSTRAINT once UNIQUE (what) DEFERRABLE INITIALLY DEFERRED");
  begin("a");
  tx().exec("SELECT pg_advisory_lock(4711)");
  tx().exec("INSERT INTO effect (what) VALUES ('x'), ('x')");
  EXPECT_EQ(sqlstate_of([&] { session_->commit(); }), "23505");
  EXPECT_EQ(sql().one("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 4711"), "0");
  EXPECT_THAT(effects(), IsEmpty());
}

TEST_F(PostgresSessionReset, keeps_what_the_url_sets) {
  PostgresSettings settings = schema_->settings();
  const std::string url = settings.url.reveal();
  settings.url = Secret(url + (url.find('?') == std::string::npos ? "?" : "&") +
                        "application_name=mine&options=-c%20work_mem%3D7MB");
  open(settings);
  for (const char* id : {"a", "b", "c"}) {
    begin(id);
    EXPECT_EQ(one("SHOW application_name"), "mine");
    EXPECT_EQ(one("SHOW work_mem"), "7MB");
    EXPECT_EQ(one("SHOW client_encoding"), "UTF8");
    tx().exec(
        "SELECT set_config('application_name', 'other', false), set_config('work_mem', '8MB', false), "
        "set_config('client_encoding', 'LATIN1', false)");
    session_->commit();
  }
}

/// Behind a pooler, the transactions share the connections of the server.
TEST_F(PostgresSessionReset, works_behind_a_pooler_in_both_modes) {
  for (const char* mode : {"session", "transaction"}) {
    OwnPgBouncer bouncer(mode);
    if (bouncer.missing()) GTEST_SKIP() << "no PgBouncer: apt-get install pgbouncer";
    PostgresSettings settings = schema_->settings();
    settings.url =
        Secret(bouncer.url() + (bouncer.url().find('?') == std::string::npos ? "?" : "&") + "application_name=mine");
    settings.prepared_statements = std::string(mode) == "session";
    open(settings);
    begin(std::string(mode) + "before");
    const std::string clean = state();
    session_->commit();
    for (const char* id : {"a", "b", "c"}) {
      begin(mode + std::string(id));
      EXPECT_EQ(state(), clean) << mode;
      EXPECT_EQ(one("SHOW application_name"), "mine") << mode;
      EXPECT_EQ(one("SHOW client_encoding"), "UTF8") << mode;
      dirty();
      session_->commit();
      const auto second = store_->open_session();
      const ports::InboxEntry entry{MessageId::from(mode + std::string(id) + "second"), 100, std::nullopt};
      second->begin(scope(), {&entry, 1});
      EXPECT_EQ(second->transaction().exec("SELECT coalesce(current_setting('app.tenant', true), '')").at(0, 0), "")
          << mode;
      second->rollback();
    }
    session_.reset();
    store_.reset();
  }
}

}  // namespace
}  // namespace turnstile::test
