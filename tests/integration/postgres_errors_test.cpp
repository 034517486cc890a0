// What goes wrong in a transaction, and which error class Turnstile reports for it.

#include <future>

#include "tests/integration/postgres_fixture.hpp"
#include "tests/support/tcp_proxy.hpp"
#include "turnstile/postgres/pqxx.hpp"

namespace turnstile::test {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using namespace std::chrono_literals;

class PostgresErrors : public PostgresTest {};

TEST_F(PostgresErrors, a_constraint_is_the_messages_fault_and_its_detail_stays_in_the_server) {  // hazard: error-detail
  sql().exec("CREATE UNIQUE INDEX one_of_each ON effect (what)");
  begin("a");
  tx().exec("INSERT INTO effect (what) VALUES ('secret value')");
  const auto again = [&] { tx().exec("INSERT INTO effect (what) VALUES ($1)", "secret value"); };
  const std::string message = message_of<SqlError>(again);
  EXPECT_THAT(message, HasSubstr("one_of_each"));
  EXPECT_THAT(message, HasSubstr("SQLSTATE 23505"));
  EXPECT_THAT(message, Not(HasSubstr("secret value")));
}

TEST_F(PostgresErrors, a_constraint_that_is_checked_at_commit_is_an_sql_error) {
  sql().exec("ALTER TABLE effect ADD CONSTRAINT late UNIQUE (what) DEFERRABLE INITIALLY DEFERRED");
  begin("a");
  for (int i = 0; i < 2; ++i) tx().exec("INSERT INTO effect (what) VALUES ('twice')");
  EXPECT_EQ(sqlstate_of([&] { session_->commit(); }), "23505");
  EXPECT_EQ(ids(), "0");
  begin("a");
  session_->commit();
  EXPECT_EQ(ids(), "1");
}

TEST_F(PostgresErrors, a_lock_that_is_not_got_in_time_is_busy) {  // hazard: blocked-insert
  Sql rival(schema_->url());
  rival.exec("BEGIN");
  rival.exec("LOCK TABLE effect");
  ports::InboxScope impatient = scope();
  impatient.lock_timeout = 50ms;
  session_->begin(impatient, {});
  const std::string message = message_of<StoreBusy>([&] { tx().exec("INSERT INTO effect (what) VALUES ('x')"); });
  EXPECT_THAT(message, HasSubstr("55P03"));
  // The handler has swallowed the error. The message is not the cause, and the whole transaction is to be tried again.
  EXPECT_THAT(message_of<StoreBusy>([&] { session_->commit(); }), HasSubstr("55P03"));
  session_->begin(impatient, {});
  tx().defer("INSERT INTO effect (what) VALUES ('x')");
  EXPECT_THAT(message_of<StoreBusy>([&] { session_->commit(); }), HasSubstr("55P03"));
}

TEST_F(PostgresErrors, a_start_that_meets_a_locked_table_names_who_holds_it) {
  PostgresSettings settings = schema_->settings();
  settings.lock_timeout = 200ms;
  const auto fresh = postgres::open_store(settings);
  for (const std::string table : {"handler", "retention", "inbox"}) {
    Sql rival(schema_->url());
    rival.exec("BEGIN");
    rival.exec("LOCK TABLE " + table);
    const std::string message = message_of<StoreBusy>([&] {
      fresh->register_handler("charge");
      fresh->retention().keep_ids(handler_, std::chrono::hours(1));
    });
    EXPECT_THAT(message,
                HasSubstr(schema_->name() + "." + table + " is locked by pid " + std::to_string(rival.backend_pid())));
  }
}

TEST_F(PostgresErrors, a_claim_that_meets_a_locked_table_names_who_holds_it) {
  PostgresSettings settings = schema_->settings();
  settings.lock_timeout = 900ms;
  const auto fresh = postgres::open_store(settings);
  Sql innocent(schema_->url());
  innocent.exec("BEGIN");
  innocent.exec("LOCK TABLE one_time_token");
  const TopicPartition at{"payments", 0};
  for (const std::string table : {"fence", "watermark", "progress", "dead"}) {
    Sql rival(schema_->url());
    rival.exec("BEGIN");
    rival.exec("LOCK TABLE " + table);
    const std::string message = message_of<StoreBusy>([&] {
      const auto claims = fresh->partitions().claim_partitions("group", {&at, 1}, settings.lock_timeout);
      fresh->dead_letters().dead_between(handler_, claims[0].fence, 0, 9);
    });
    EXPECT_THAT(message, HasSubstr(schema_->name() + "." + table + " is locked by pid " +
                                   std::to_string(rival.backend_pid()) + " ("));
    EXPECT_THAT(message, Not(HasSubstr("pid " + std::to_string(innocent.backend_pid()) + " (")));
  }
}

TEST_F(PostgresErrors, a_claim_that_waits_for_a_transaction_of_the_last_owner_names_it) {
  PostgresSettings settings = schema_->settings();
  settings.lock_timeout = 900ms;
  const auto fresh = postgres::open_store(settings);
  begin("a");
  const int last_owner = backend();
  const TopicPartition at{"payments", 0};
  EXPECT_THAT(
      message_of<StoreBusy>([&] {
        fresh->partitions().claim_partitions("group", {&at, 1}, settings.lock_timeout);
      }),
      HasSubstr("a row of " + schema_->name() + ".fence is locked by pid " + std::to_string(last_owner) + " ("));
}

TEST_F(PostgresErrors, a_dead_letter_that_meets_a_locked_table_is_busy) {
  PostgresSettings settings = schema_->settings();
  settings.lock_timeout = 900ms;
  const auto fresh = postgres::open_store(settings);
  Sql rival(schema_->url());
  rival.exec("BEGIN");
  rival.exec("LOCK TABLE dead IN SHARE MODE");
  ports::DeadMessage letter{
      .handler = handler_, .fence = fence_, .record = {}, .id = {}, .error = "no", .dead_letter = {}};
  letter.record.topic = "payments";
  EXPECT_THAT(message_of<StoreBusy>([&] { fresh->dead_letters().record_dead(letter); }),
              HasSubstr(".dead is locked by pid " + std::to_string(rival.backend_pid()) + " ("));
}

/// A reader, a migration that waits for it, and a start that waits for the migration.
TEST_F(PostgresErrors, of_the_sessions_that_wait_for_one_another_the_first_is_named_first) {
  PostgresSettings settings = schema_->settings();
  settings.lock_timeout = 900ms;
  const auto fresh = postgres::open_store(settings);
  Sql reader(schema_->url()), migration(schema_->url());
  reader.exec("BEGIN");
  reader.exec("SELECT count(*) FROM handler");
  migration.exec("BEGIN");
  const int waiting = migration.backend_pid();
  auto locked = std::async(std::launch::async, [&] { migration.exec("LOCK TABLE handler"); });
  ASSERT_TRUE(eventually([&] {
    return !sql().column("SELECT 1 FROM pg_locks WHERE NOT granted AND pid = " + std::to_string(waiting)).empty();
  }));
  const std::string table = schema_->name() + ".handler";
  EXPECT_THAT(message_of<StoreBusy>([&] { fresh->register_handler("charge"); }),
              ContainsRegex(table + " is locked by pid " + std::to_string(reader.backend_pid()) + " \\(.*; " + table +
                            " is about to be locked by pid " + std::to_string(waiting) + " \\("));
  reader.exec("COMMIT");
  locked.get();
}

TEST_F(PostgresErrors, a_deadlock_of_handlers_is_busy_for_one_of_them) {
  sql().exec("INSERT INTO effect (what) VALUES ('one'), ('two')");
  const auto lock = [](Transaction& with, const char* what) {
    with.exec("UPDATE effect SET what = what WHERE what = $1", what);
  };
  const auto other = store_->open_session();
  other->begin(scope(), {});
  begin("a");
  lock(tx(), "one");
  lock(other->transaction(), "two");
  const auto finish = [&](ports::InboxSession& session, const char* what) {
    try {
      lock(session.transaction(), what);
      session.commit();
      return 0;
    } catch (const StoreBusy& error) {
      EXPECT_THAT(error.what(), HasSubstr("40P01"));
      session.rollback();
      return 1;
    }
  };
  auto theirs = std::async(std::launch::async, finish, std::ref(*other), "one");
  const int mine = finish(*session_, "two");
  EXPECT_EQ(mine + theirs.get(), 1);
}

TEST_F(PostgresErrors, a_handler_that_leaves_its_transaction_open_for_too_long_has_failed) {
  ports::InboxScope silent = scope();
  silent.idle_timeout = 100ms;
  for (const bool at_commit : {true, false}) {
    session_->begin(silent, {});
    const int backend_pid = backend();
    ASSERT_TRUE(gone(backend_pid));
    EXPECT_THAT(message_of<SqlError>([&] {
                  if (at_commit) session_->commit();
                  else tx().exec("SELECT 1");
                }),
                HasSubstr("25P03"));
  }
  begin("a");
  session_->commit();
}

TEST_F(PostgresErrors, a_backend_terminated_in_mid_transaction_is_unavailable_and_nothing_is_committed) {
  for (const bool at_commit : {true, false}) {
    begin("a");
    tx().exec("INSERT INTO effect (what) VALUES ('x')");
    const int backend_pid = backend();
    sql().exec("SELECT pg_terminate_backend(" + std::to_string(backend_pid) + ")");
    ASSERT_TRUE(gone(backend_pid));
    EXPECT_THAT(message_of<StoreUnavailable>([&] {
                  if (at_commit) session_->commit();
                  else tx().exec("SELECT 1");
                }),
                HasSubstr("57P01"));
    EXPECT_THROW(tx().exec("SELECT 1"), Error);
  }
  EXPECT_THAT(effects(), IsEmpty());
  EXPECT_EQ(ids(), "0");
  begin("a");
  session_->commit();
  EXPECT_EQ(ids(), "1");
}

TEST_F(PostgresErrors, idle_connections_that_died_are_replaced_in_silence) {
  begin("a");
  const int first = backend();
  session_->commit();
  sql().exec(
      "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'turnstile' AND pid <> pg_backend_pid() AND query LIKE '%" +
      schema_->name() + "%'");
  sql().exec("SELECT pg_terminate_backend(" + std::to_string(first) + ")");
  ASSERT_TRUE(gone(first));
  EXPECT_EQ(begin("b").at(0), ports::Admission::fresh);
  EXPECT_NE(backend(), first);
  session_->commit();
  EXPECT_EQ(store_->register_handler("charge"), handler_);
}

TEST_F(PostgresErrors, a_lost_answer_to_commit_is_in_doubt_and_a_lost_request_too) {  // hazard: commit-in-doubt
  TcpProxy proxy = proxy_to(sql());
  open(schema_->settings_through(proxy.port()));
  for (const bool carried_out : {true, false}) {
    begin(carried_out ? "carried out" : "lost");
    tx().defer("INSERT INTO effect (what) VALUES ($1)", carried_out ? "carried out" : "lost");
    if (carried_out) proxy.drop_next_answer();
    else proxy.drop_next_request();
    EXPECT_THAT(message_of<CommitInDoubt>([&] { session_->commit(); }), HasSubstr("between COMMIT and its answer"));
  }
  EXPECT_THAT(effects(), ::testing::ElementsAre("carried out"));
}

TEST_F(PostgresErrors, an_error_before_a_commit_is_certain_even_when_the_connection_goes) {
  begin("a");
  tx().defer("SELECT 1 / 0");
  tx().defer("SELECT pg_terminate_backend(pg_backend_pid())");  // skipped
  EXPECT_EQ(sqlstate_of([&] { session_->commit(); }), "22012");
}

TEST_F(PostgresErrors, a_handler_may_use_savepoints_of_its_own) {
  begin("a");
  tx().exec("SAVEPOINT mine");
  EXPECT_EQ(sqlstate_of([&] { tx().exec("SELECT 1 / 0"); }), "22012");
  tx().exec("ROLLBACK TO SAVEPOINT mine");
  tx().exec("INSERT INTO effect (what) VALUES ('saved')");
  session_->commit();
  EXPECT_THAT(effects(), ::testing::ElementsAre("saved"));
}

TEST_F(PostgresErrors, copy_is_refused_with_the_way_out) {
  begin("a");
  EXPECT_THAT(message_of<SqlError>([&] { tx().exec("COPY effect (what) FROM STDIN"); }), HasSubstr("native()"));
  session_->rollback();
  begin("a");
  session_->commit();
}

/// The refusal of COPY ends the connection, so native() finds the failure and the loss together.
TEST_F(PostgresErrors, native_reports_the_deferred_statement_that_failed_before_the_connection_was_lost) {
  begin("a");
  tx().defer("COPY effect (what) FROM STDIN");
  EXPECT_THAT(message_of<SqlError>([&] { postgres::native(tx()); }), HasSubstr("COPY works neither"));
  session_->rollback();
  begin("a");
  session_->commit();
}

TEST_F(PostgresErrors, weak_settings_of_the_server_are_found) {  // hazard: volatile-server-settings
  EXPECT_THAT(postgres::lint_server(schema_->settings()), IsEmpty());
  PostgresSettings weak = schema_->settings();
  weak.url = Secret(schema_->url() + "%20-csynchronous_commit%3Doff");
  const auto findings = postgres::lint_server(weak);
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_THAT(findings[0].problem, HasSubstr("synchronous_commit = off"));
  EXPECT_THAT(findings[0].remedy, HasSubstr("ALTER SYSTEM SET synchronous_commit = on"));
}

/// The table holds the timestamps that PostgreSQL can represent. The header turnstile-original-timestamp holds each of
/// them.
TEST_F(PostgresErrors, a_dead_letters_timestamp_is_kept_where_postgres_can_hold_it) {
  Offset offset = 0;
  for (const std::int64_t ms : {std::int64_t{1'700'000'000'123}, std::int64_t{-1}, std::int64_t{1} << 53,
                                (std::int64_t{1} << 53) + 1, std::int64_t{1'700'000'000'123'456'789}}) {
    ports::DeadMessage dead;
    dead.handler = handler_;
    dead.fence = fence_;
    dead.record.offset = offset++;
    dead.record.timestamp = Timestamp(std::chrono::milliseconds(ms));
    EXPECT_TRUE(store_->dead_letters().record_dead(dead)) << ms;
  }
  EXPECT_THAT(sql().column("SELECT (extract(epoch FROM record_timestamp) * 1000)::bigint::text FROM dead "
                           "WHERE record_timestamp IS NOT NULL ORDER BY record_offset"),
              ::testing::ElementsAre("1700000000123", "-1", "9007199254740992"));
  EXPECT_EQ(sql().one("SELECT count(*) FROM dead WHERE record_timestamp IS NULL"), "2");
}

}  // namespace
}  // namespace turnstile::test
