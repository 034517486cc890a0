// Another session locks one of Turnstile's tables, as LOCK TABLE and VACUUM FULL do. PostgreSQL locks the tables of a
// statement before it runs the statement (hazard: table-locks).

#include "tests/integration/postgres_fixture.hpp"
#include "tests/support/own_pgbouncer.hpp"
#include "turnstile/ports/claims.hpp"

namespace turnstile::test {
namespace {

using ::testing::HasSubstr;
using namespace std::chrono_literals;

constexpr std::chrono::milliseconds kLockTimeout{500};

class PostgresTableLocks : public PostgresTest {
 protected:
  void SetUp() override {
    PostgresTest::SetUp();
    if (!IsSkipped()) open_with(schema_->settings());
  }
  /// No connection of the store exists yet, except those of its own calls.
  void open_with(PostgresSettings settings) {
    settings.lock_timeout = kLockTimeout;
    settings.connect_timeout = 1s;  // a statement is given up after twice that, and kLockTimeout
    open(settings);
  }
  [[nodiscard]] ports::InboxScope scope() const {
    return {.handler = handler_, .fence = fence_, .lock_timeout = kLockTimeout, .idle_timeout = 30s};
  }
  void begin(const std::string& prefix, std::size_t count) {
    std::vector<ports::InboxEntry> entries;
    for (std::size_t i = 0; i < count; ++i)
      entries.push_back({MessageId::from(prefix + std::to_string(i)), static_cast<Offset>(i), std::nullopt});
    session_->begin(scope(), entries);
  }
  void begin_shared() {
    const ports::InboxEntry entry{MessageId::from("shared"), 0, std::nullopt};
    const ports::InboxShare share{fence_, {&entry, 1}};
    ports::InboxScope common = scope();
    common.fence.reset();
    session_->begin_shared(common, {&share, 1});
  }
  ports::HeldClaim claim(const std::string& id) {
    const ports::InboxEntry entry{MessageId::from(id), 0, std::nullopt};
    const auto claims = store_->claims()->claim(
        {.handler = handler_, .fence = fence_, .owner = owner_, .lease = 60s, .lock_timeout = kLockTimeout},
        {&entry, 1});
    return {entry.id, claims.at(0).fence};
  }
  void renew(const ports::HeldClaim& claim) {
    EXPECT_EQ(store_->claims()->renew(handler_, owner_, 60s, {&claim, 1}).size(), 1U);
  }
  void settled() {
    const MessageId id = MessageId::from("settled");
    EXPECT_EQ(session_->settled(handler_, fence_, {&id, 1}), std::vector<bool>{false});
  }
  [[nodiscard]] std::string locking(const std::string& table) const {
    return "BEGIN; LOCK TABLE " + schema_->name() + "." + table + " IN ACCESS EXCLUSIVE MODE";
  }
  /// How many sessions wait so.
  int sessions(const std::string& wait) {
    return std::stoi(sql().one("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND " + wait));
  }
  int waiting() { return sessions("wait_event_type = 'Lock'"); }
  /// While another session has the table: each try ends soon, names that session, and leaves none in the server's queue.
  template <class Call>
  void expect_busy(const std::string& table, Call call) {
    SCOPED_TRACE(table);
    Sql holder(schema_->url());
    holder.exec(locking(table));
    for (int i = 0; i < 2; ++i) {
      const auto began = std::chrono::steady_clock::now();
      const std::string why = message_of<StoreBusy>(call);
      EXPECT_LT(std::chrono::steady_clock::now() - began, 2s) << why;
      EXPECT_THAT(why, HasSubstr(schema_->name() + "." + table + " is locked by pid " +
                                 std::to_string(holder.backend_pid()) + " ("));
      EXPECT_TRUE(eventually([&] { return waiting() == 0; }, kLockTimeout));
    }
    holder.exec("ROLLBACK");
    call();
    session_->rollback();
  }

  const MessageId owner_ = MessageId::from("owner");
};

TEST_F(PostgresTableLocks, one_message_waits_no_longer_than_its_lock_timeout) {
  for (const char* table : {"inbox", "fence"}) {
    open_with(schema_->settings());
    expect_busy(table, [&] { begin("one", 1); });
  }
}

TEST_F(PostgresTableLocks, one_message_without_a_partition_waits_no_longer_either) {
  expect_busy("inbox", [&] {
    const ports::InboxEntry entry{MessageId::from("free"), 0, std::nullopt};
    ports::InboxScope free = scope();
    free.fence.reset();
    session_->begin(free, {&entry, 1});
  });
}

TEST_F(PostgresTableLocks, a_batch_waits_no_longer_than_its_lock_timeout) {
  for (const char* table : {"inbox", "fence"}) {
    open_with(schema_->settings());
    expect_busy(table, [&] { begin("batch", 3); });
  }
}

TEST_F(PostgresTableLocks, a_shared_transaction_waits_no_longer_than_its_lock_timeout) {
  for (const char* table : {"inbox", "fence"}) {
    open_with(schema_->settings());
    expect_busy(table, [&] { begin_shared(); });
  }
}

TEST_F(PostgresTableLocks, claims_and_renewals_wait_no_longer_than_the_lock_timeout) {
  for (const char* table : {"claim", "fence", "inbox"}) {
    open_with(schema_->settings());
    expect_busy(table, [&] { claim("leased"); });
  }
  const ports::HeldClaim held = claim("renewed");
  expect_busy("claim", [&] { renew(held); });
}

TEST_F(PostgresTableLocks, a_look_up_waits_no_longer_than_the_lock_timeout) {
  expect_busy("inbox", [&] { settled(); });
}

TEST_F(PostgresTableLocks, the_limit_outlasts_a_reset_of_the_session) {
  for (const bool committed : {true, false}) {
    begin(committed ? "committed" : "rolled back", 2);
    const int pid = backend();
    tx().exec("SELECT set_config('lock_timeout', '1h', false)");
    if (committed) session_->commit();
    else session_->rollback();
    EXPECT_EQ(sessions("pid = " + std::to_string(pid)), 1) << "the connection was dropped";
    expect_busy("inbox", [&] { begin("later", 2); });
  }
}

/// The server does not look at the connection while a statement waits.
TEST_F(PostgresTableLocks, a_statement_that_is_given_up_is_cancelled) {
  sql().exec(R"(
CREATE FUNCTION sleep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(3600); RETURN NEW; END $$;
CREATE TRIGGER sleep BEFORE INSERT ON inbox FOR EACH ROW EXECUTE FUNCTION sleep())");
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(message_of<StoreUnavailable>([&] { begin("slow", 1); }), HasSubstr("it has not answered for "));
    EXPECT_TRUE(eventually([&] { return sessions("wait_event = 'PgSleep'") == 0; }));
  }
}

/// A pooler lends its sessions to other clients, so they have no lock_timeout.
TEST_F(PostgresTableLocks, a_statement_that_is_given_up_behind_a_pooler_is_cancelled) {
  for (const char* mode : {"session", "transaction"}) {
    OwnPgBouncer bouncer(mode);
    if (bouncer.missing()) GTEST_SKIP() << "no PgBouncer: apt-get install pgbouncer";
    PostgresSettings settings = schema_->settings();
    settings.url = Secret(bouncer.url());
    settings.prepared_statements = false;
    open_with(settings);
    Sql holder(schema_->url());
    holder.exec(locking("inbox"));
    for (int i = 0; i < 2; ++i) {
      EXPECT_THAT(message_of<StoreUnavailable>([&] { begin("pooled", 1); }), HasSubstr("it has not answered for "));
      EXPECT_TRUE(eventually([&] { return waiting() == 0; })) << mode;
    }
    holder.exec("ROLLBACK");
    begin("pooled", 1);
    session_->commit();
    session_.reset();
    store_.reset();
  }
}

/// A statement outside a transaction is committed with the Sync after it.
TEST_F(PostgresTableLocks, an_error_at_the_end_of_a_statement_is_no_lost_connection) {
  const ports::HeldClaim held = claim("renewed");
  sql().exec(R"(
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not today'; END $$;
CREATE CONSTRAINT TRIGGER refuse AFTER UPDATE ON claim DEFERRABLE INITIALLY DEFERRED
   FOR EACH ROW EXECUTE FUNCTION refuse())");
  EXPECT_THAT(message_of<StoreFailed>([&] { renew(held); }), HasSubstr("not today (SQLSTATE P0001)"));
  sql().exec("DROP TRIGGER refuse ON claim");
  renew(held);
}

}  // namespace
}  // namespace turnstile::test
