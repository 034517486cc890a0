// Properties of the PostgreSQL limiters only: outages of the database, lost answers, the rights of operators and of
// roles with few rights, and limits that are lowered under load.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/ringbuffer_sink.h>

#include <fstream>
#include <sstream>
#include <thread>

#include "adapters/postgres/src/limits/limiter_statements.hpp"
#include "tests/contract/limiter_fixture.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/postgres_schema.hpp"
#include "tests/support/tcp_proxy.hpp"
#include "turnstile/error.hpp"
#include "turnstile/postgres/limiters.hpp"
#include "turnstile/postgres/migrations.hpp"

namespace turnstile::test {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;

class LimiterPostgres : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!postgres_url()) GTEST_SKIP() << kNoPostgres;
    schema_ = std::make_unique<PostgresSchema>();
  }
  std::shared_ptr<ports::Limiters> process(const PostgresSettings& settings, std::chrono::milliseconds lease = 2s) {
    postgres::LimiterSettings limiters;
    limiters.lease = lease;
    limiters.holder = "tester";
    return postgres::open_limiters(settings, limiters, std::make_shared<spdlog::logger>("test", lines_));
  }
  std::shared_ptr<ports::Limiter> join(std::int64_t limit, const std::optional<PostgresSettings>& settings = {}) {
    return process(settings.value_or(schema_->settings()))->open("psp", limit);
  }
  std::shared_ptr<ports::Limiter> join_by_a_cable(std::int64_t limit) {
    proxy_ = std::make_unique<TcpProxy>("127.0.0.1", std::stoi(sql().one("SELECT current_setting('port')")));
    return join(limit, schema_->settings_through(proxy_->port()));
  }
  Sql& sql() { return schema_->sql(); }
  std::string rows_held() { return sql().one("SELECT count(*) FROM permit WHERE holder IS NOT NULL"); }
  /// How many of the lines contain the text.
  long said(const std::string& text) {
    const auto lines = lines_->last_formatted();
    return std::count_if(lines.begin(), lines.end(), [&](const auto& line) { return line.find(text) != line.npos; });
  }

  std::unique_ptr<PostgresSchema> schema_;
  std::unique_ptr<TcpProxy> proxy_;
  std::shared_ptr<spdlog::sinks::ringbuffer_sink_mt> lines_ = std::make_shared<spdlog::sinks::ringbuffer_sink_mt>(100);
};

TEST_F(LimiterPostgres, the_database_goes_away_and_comes_back_with_one_line_each) {
  const auto limiter = join_by_a_cable(2);
  const Permit held = acquire(limiter);
  ASSERT_TRUE(held);
  proxy_->cut(true);
  EXPECT_FALSE(acquire(limiter, 1'000ms)) << "no new permits meanwhile";
  EXPECT_EQ(said("cannot be used. No new permits are given until it can"), 1);
  proxy_->cut(false);
  EXPECT_TRUE(acquire(limiter));
  EXPECT_EQ(said("cannot be used. No new permits are given until it can"), 1);
  EXPECT_TRUE(eventually([&] { return said("answers again") == 1; }));
}

TEST_F(LimiterPostgres, a_short_absence_costs_nothing_that_is_held) {
  const auto limiter = join_by_a_cable(1);
  const Permit held = acquire(limiter);
  ASSERT_TRUE(held);
  proxy_->cut(false);  // all connections are lost, and new ones are accepted
  EXPECT_FALSE(eventually([&] { return held.lost().stop_requested(); }, 2 * 2s)) << "two leases long";
  EXPECT_EQ(rows_held(), "1");
}

TEST_F(LimiterPostgres, it_may_be_opened_while_the_database_is_away) {
  const auto limiter = join_by_a_cable(1);
  proxy_->cut(true);
  const auto other = join(3, schema_->settings_through(proxy_->port()));
  EXPECT_FALSE(acquire(other, 500ms));
  EXPECT_EQ(other->state().limit, 3) << "what it is configured with, until it knows better";
  proxy_->cut(false);
  EXPECT_TRUE(acquire(other));
}

// Hazard: late-grant: the row belongs to this process, which never learned it.
TEST_F(LimiterPostgres, a_grant_whose_answer_was_lost_comes_back_before_its_lease) {
  const auto limiter = join_by_a_cable(1);
  { ASSERT_TRUE(acquire(limiter)); }
  ASSERT_TRUE(eventually([&] { return rows_held() == "0"; }));
  for (int i = 0; i < 5; ++i) {
    proxy_->drop_next_answer();
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_TRUE(acquire(limiter));
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 1'500ms) << "its own lost permit was in the way";
    ASSERT_TRUE(eventually([&] { return rows_held() == "0"; }));
  }
}

TEST_F(LimiterPostgres, a_permit_that_was_taken_out_of_the_table_is_lost_at_the_next_renewal) {
  const auto limiter = join(2);
  const Permit held = acquire(limiter);
  ASSERT_TRUE(held);
  sql().exec("UPDATE permit SET generation = generation + 1");
  EXPECT_TRUE(eventually([&] { return held.lost().stop_requested(); }, 2s));
  EXPECT_TRUE(eventually([&] { return said("permits in use were lost") == 1; })) << "it is said after that";
}

/// A replica that lagged knows the row as it was before the grant, and grants it once more.
TEST_F(LimiterPostgres, a_grant_that_the_database_has_lost_and_repeats_is_another_permit) {
  const auto limiter = join(1);
  Permit lost = acquire(limiter);
  ASSERT_TRUE(lost);
  sql().exec("UPDATE permit SET generation = generation - 1, holder = NULL");
  ASSERT_TRUE(eventually([&] { return lost.lost().stop_requested(); }));
  const Permit again = acquire(limiter);
  ASSERT_TRUE(again);
  EXPECT_NE(again.token(), lost.token());
  EXPECT_FALSE(lost.holds());
  lost.give_back();
  const auto expires = [&] { return sql().one("SELECT expires_at FROM permit"); };
  const auto before = expires();
  EXPECT_TRUE(eventually([&] { return expires() != before; })) << "its worker has run all that it had to do";
  EXPECT_EQ(rows_held(), "1") << "the late release returned a permit that is in use";
  EXPECT_TRUE(again.holds());
}

TEST_F(LimiterPostgres, who_holds_what_is_in_the_tables) {
  const auto limiter = join(2);
  const Permit held = acquire(limiter);
  ASSERT_TRUE(held);
  EXPECT_THAT(sql().one("SELECT holder FROM permit"), ::testing::StartsWith("tester/"));
  EXPECT_EQ(sql().one("SELECT expires_at BETWEEN clock_timestamp() AND clock_timestamp() + interval '2 s' FROM permit"),
            "t");
}

TEST_F(LimiterPostgres, what_the_operator_says_counts_before_what_programs_are_configured_with) {
  const auto first = join(4);
  ASSERT_TRUE(acquire(first));
  postgres::set_limit(schema_->settings(), "psp", 2);
  EXPECT_TRUE(eventually([&] { return static_cast<bool>(acquire(first)) && first->state().limit == 2; }));
  const auto second = join(8);
  EXPECT_TRUE(acquire(second));
  EXPECT_EQ(second->state().limit, 2);
  EXPECT_GE(said("the limit is 2, set by an operator"), 1);
  postgres::unset_limit(schema_->settings(), "psp");
  EXPECT_TRUE(eventually([&] { return static_cast<bool>(acquire(first)) && first->state().limit == 4; }));
}

// A process may be stopped for so long that the others have removed it, and a failover may lose its row.
TEST_F(LimiterPostgres, a_value_that_the_database_has_lost_is_declared_again) {
  const auto low = join(2), high = join(4);
  const Permit held = acquire(high);
  ASSERT_TRUE(held);
  ASSERT_TRUE(eventually([&] { return high->state().limit == 2; }));
  sql().exec("DELETE FROM limiter_process WHERE expires_at IS NOT NULL");
  EXPECT_TRUE(eventually([&] { return sql().one("SELECT count(*) FROM limiter_value") == "2"; }));
  EXPECT_TRUE(eventually([&] { return high->state().limit == 2; }));
}

/// What a program of a build before migration 23 does when it starts.
void start_earlier_build(Sql& sql, int limit) {
  sql.exec("INSERT INTO limiter AS l (name, configured) VALUES ('psp', " + std::to_string(limit) +
           ") ON CONFLICT (name) DO UPDATE SET configured = excluded.configured, version = l.version + 1, "
           "changed_at = clock_timestamp() WHERE l.configured <> excluded.configured");
}

TEST_F(LimiterPostgres, an_earlier_build_cannot_raise_a_limit_and_its_own_counts_for_an_hour) {
  const auto configured = [&] { return sql().one("SELECT configured FROM limiter WHERE name = 'psp'"); };
  const std::string earlier =
      "SELECT expires_at - clock_timestamp() BETWEEN interval '59 min' AND interval '1 h' "
      "FROM limiter_process WHERE holder LIKE 'earlier builds/%'";
  const auto& known = postgres::embedded_migration_list();
  const auto added = std::count_if(known.begin(), known.end(), [](const auto& each) { return each.number >= 23; });
  postgres::migrate_down(schema_->settings(), known, static_cast<int>(added));
  start_earlier_build(sql(), 3);
  postgres::migrate_up(schema_->settings(), known);
  EXPECT_EQ(sql().one(earlier), "t");
  sql().exec("INSERT INTO limiter (name, configured) VALUES ('another', 5)");
  EXPECT_EQ(sql().one("SELECT configured FROM limiter_value WHERE configured = 5 AND holder LIKE 'earlier builds/%'"),
            "5");
  sql().exec("DELETE FROM limiter_process WHERE holder IN (SELECT holder FROM limiter_value WHERE configured = 5)");
  const auto limiter = join(4);
  const Permit held = acquire(limiter);
  ASSERT_TRUE(held);
  EXPECT_EQ(limiter->state().limit, 3);
  start_earlier_build(sql(), 8);
  EXPECT_EQ(configured(), "3");
  start_earlier_build(sql(), 2);
  EXPECT_EQ(configured(), "2");
  EXPECT_EQ(sql().one(earlier), "t");
  EXPECT_TRUE(eventually([&] { return limiter->state().limit == 2; }));
  sql().exec("UPDATE limiter_process SET expires_at = clock_timestamp() WHERE holder LIKE 'earlier builds/%'");
  EXPECT_TRUE(eventually([&] { return limiter->state().limit == 4; }));
  EXPECT_EQ(configured(), "4");
  start_earlier_build(sql(), 8);
  EXPECT_EQ(configured(), "4") << "what ended is not revived";
}

template <class Call>
std::string error_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST_F(LimiterPostgres, limits_that_cannot_be_are_refused) {
  const auto settings = schema_->settings();
  EXPECT_THAT(error_of([&] { postgres::set_limit(settings, "psp", 5); }),
              AllOf(HasSubstr("'psp'"), HasSubstr("no program has opened it")));
  EXPECT_THAT(error_of([&] { postgres::set_limit(settings, "psp", -1); }), HasSubstr("-1"));
  EXPECT_THAT(error_of([&] { postgres::set_limit(settings, "psp", 1'000'000'001); }), HasSubstr("1000000000"));
  EXPECT_THAT(error_of([&] { join(1'000'000'001); }), HasSubstr("at most 1000000000"));
  postgres::LimiterSettings limiters;
  limiters.lease = 999ms;
  limiters.poll_interval = 200ms;
  EXPECT_THAT(error_of([&] { postgres::open_limiters(settings, limiters); }),
              AllOf(HasSubstr("lease"), HasSubstr("poll interval")));
}

TEST_F(LimiterPostgres, names_that_postgres_cannot_store_are_refused) {
  const auto limiters = process(schema_->settings());
  using namespace std::string_literals;
  for (const std::string& name : {""s, "h\xff\xfe"s, "a\0b"s, std::string(256, 'x')})
    EXPECT_THAT(error_of([&] { limiters->open(name, 1); }), HasSubstr("a name has 1 to 255 bytes of UTF-8")) << name;
  EXPECT_TRUE(acquire(limiters->open(std::string(255, 'x'), 1)));
  EXPECT_TRUE(acquire(limiters->open("zahlungen für €", 1)));
}

TEST_F(LimiterPostgres, a_limiter_whose_statements_fail_does_not_stop_the_others) {
  sql().exec("CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not this one'; END $$");
  sql().exec(
      "CREATE TRIGGER refuse BEFORE INSERT ON limiter FOR EACH ROW WHEN (NEW.name = 'bad') "
      "EXECUTE FUNCTION refuse()");
  const auto limiters = process(schema_->settings());
  const auto bad = limiters->open("bad", 1);
  EXPECT_TRUE(eventually([&] { return said("limiter 'bad': it gets no new permits") == 1; }));
  const auto good = limiters->open("good", 1);
  for (int i = 0; i < 3; ++i) {
    const Permit permit = acquire(good);
    ASSERT_TRUE(permit);
    EXPECT_FALSE(acquire(bad, 500ms));
    EXPECT_FALSE(permit.lost().stop_requested());
  }
  EXPECT_EQ(said("not this one"), 1) << "it is tried again and again, and reported once";
  EXPECT_EQ(said("cannot be used"), 0) << "PostgreSQL can be used";
  sql().exec("DROP TRIGGER refuse ON limiter");
  EXPECT_TRUE(acquire(bad));
  EXPECT_EQ(said("limiter 'bad': its statements succeed again"), 1);
}

TEST_F(LimiterPostgres, a_limiter_that_another_session_has_locked_is_reported_and_the_others_go_on) {
  PostgresSettings settings = schema_->settings();
  settings.lock_timeout = 3s;
  const auto limiters = process(settings, 12s);
  const auto locked = limiters->open("locked", 1);
  { ASSERT_TRUE(acquire(locked)); }
  ASSERT_TRUE(eventually([&] { return rows_held() == "0"; }));
  Sql other(schema_->url());
  other.exec("BEGIN");
  other.exec("SELECT 1 FROM limiter WHERE name = 'locked' FOR UPDATE");
  Calls delivered;
  const auto withdraw =
      locked->acquire_later(1, Priority::normal, [call = delivered.counter()](const Permit&) { call(); });
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(acquire(limiters->open("open-" + std::to_string(i), 1)));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 10s) << "each waited for the lock";
  EXPECT_TRUE(
      eventually([&] { return said("limiter 'locked': it gets no new permits, because another session") == 1; }));
  EXPECT_EQ(said("code=store_busy"), 1);
  EXPECT_EQ(delivered.count(), 0);
  other.exec("COMMIT");
  EXPECT_TRUE(delivered.wait_for(1));
  EXPECT_TRUE(eventually([&] { return said("limiter 'locked': its statements succeed again") == 1; }));
  EXPECT_EQ(said("code=store_busy"), 1);
}

TEST_F(LimiterPostgres, permits_that_another_session_has_locked_are_reported) {
  PostgresSettings settings = schema_->settings();
  settings.lock_timeout = 500ms;
  const auto limiter = process(settings, 8s)->open("psp", 1);
  const Permit held = acquire(limiter);
  ASSERT_TRUE(held);
  Sql other(schema_->url());
  other.exec("BEGIN");
  other.exec("SELECT 1 FROM permit FOR UPDATE");
  EXPECT_TRUE(eventually([&] { return said("permits are not renewed") == 1; }));
  other.exec("COMMIT");
  const auto expires = [&] { return sql().one("SELECT expires_at FROM permit"); };
  const auto before = expires();
  EXPECT_TRUE(eventually([&] { return expires() != before; }));
  EXPECT_EQ(said("code=store_busy"), 1);
}

TEST_F(LimiterPostgres, the_role_with_the_least_rights_can_use_limits_and_not_set_them) {
  const std::string role = schema_->name() + "_app";
  sql().exec("CREATE ROLE " + role + " LOGIN PASSWORD 'app'");
  auto app = schema_->settings();
  app.url = Secret(with_parameter(with_parameter(schema_->url(), "user", role), "password", "app"));
  {
    // Without any right, the log line names the statements to run, and they are enough.
    const auto limiter = join(1, app);
    ASSERT_TRUE(eventually([&] { return said("as the owner of the schema run: GRANT") == 1; }));
    for (const auto& line : lines_->last_formatted()) {
      const auto at = line.find("GRANT USAGE"), end = line.rfind(';');
      if (at != line.npos) sql().exec(line.substr(at, end - at));
    }
    Permit one = acquire(limiter);
    EXPECT_TRUE(one);
    const auto other = join(1, app);
    EXPECT_FALSE(acquire(other, 300ms));  // it waits, and records its wait
    EXPECT_TRUE(eventually([&] { return sql().one("SELECT count(*) FROM permit_wait") == "1"; }));
    one.give_back();
    EXPECT_TRUE(acquire(other));
    EXPECT_THAT(error_of([&] { postgres::set_limit(app, "psp", 5); }), HasSubstr("only the owner of the schema"));
  }
  EXPECT_EQ(sql().one("SELECT count(*) FROM permit_wait"), "0") << "who leaves waits no more";
  sql().exec("DROP OWNED BY " + role);
  sql().exec("DROP ROLE " + role);
}

/// A process that only takes and releases as fast as possible, with the statements themselves. Every third process dies
/// again and again with all its permits.
void take_and_give(const std::string& url, const std::string& schema, int number, const std::stop_token& stop,
                   std::atomic<int>& taken) {
  Sql sql(url);
  const postgres::LimiterStatements statements(schema);
  sql.exec("PREPARE take (bigint, bigint, bigint, text, bigint) AS " + statements.take);
  sql.exec("PREPARE sweep (bigint) AS " + statements.sweep);
  const bool dies = number % 3 == 0;
  const std::string me = "'" + std::to_string(number) + "'", count = std::to_string(1 + number % 3);
  while (!stop.stop_requested()) {
    const auto version = sql.one("SELECT version FROM limiter");
    const auto slots = sql.column("EXECUTE take (1, " + version + ", " + count + ", " + me + ", " +
                                  (dies ? "5000" : "10000000") + ")");
    taken += static_cast<int>(slots.size());
    for (const auto& slot : slots) {
      if (!dies) sql.exec("UPDATE permit SET holder = NULL WHERE slot = " + slot + " AND holder = " + me);
    }
    sql.exec("EXECUTE sweep (1)");
  }
}

// The central property, tested with the statements alone: for any rows and any number of concurrent requests, a granted
// permit has room. The database is the witness: after a grant, a statement counts all held permits under a lock that
// only one grant at a time can have. The limit cannot change before its transaction ends.
TEST_F(LimiterPostgres, a_grant_never_goes_above_the_limit_although_it_is_changed_under_many_who_ask) {
  sql().exec("INSERT INTO limiter (name, configured) VALUES ('psp', 8)");
  sql().exec("CREATE TABLE excess (held bigint, most bigint)");
  sql().exec(
      "CREATE FUNCTION witness() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
      "IF EXISTS (SELECT FROM granted WHERE holder IS NOT NULL) THEN "
      "  PERFORM pg_advisory_xact_lock(1); "
      "  INSERT INTO excess SELECT h.held, coalesce(l.ordered, l.configured) FROM limiter l, (SELECT count(*) AS held "
      "    FROM permit WHERE holder IS NOT NULL AND expires_at > clock_timestamp()) h "
      "   WHERE h.held > coalesce(l.ordered, l.configured); "
      "END IF; RETURN NULL; END $$");
  for (const std::string event : {"INSERT", "UPDATE"}) {
    sql().exec("CREATE TRIGGER on_" + event + " AFTER " + event +
               " ON permit REFERENCING NEW TABLE AS granted FOR EACH STATEMENT EXECUTE FUNCTION witness()");
  }
  std::atomic<int> taken{0};
  {
    std::vector<std::jthread> processes;
    for (int number = 0; number < 6; ++number) {
      processes.emplace_back([&, number](const std::stop_token& stop) {
        take_and_give(schema_->url(), schema_->name(), number, stop, taken);
      });
    }
    for (int round = 0; round < 20; ++round) {
      const int before = taken;
      postgres::set_limit(schema_->settings(), "psp", 1 + (round * 5) % 8);
      ASSERT_TRUE(eventually([&] { return taken > before + 20; })) << "round " << round;
    }
  }
  EXPECT_EQ(sql().one("SELECT count(*) FROM excess"), "0");
}

}  // namespace
}  // namespace turnstile::test
