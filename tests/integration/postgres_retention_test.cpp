// How long ids are kept in the database, which roles may have them deleted, and the steps of the purger.

#include <spdlog/spdlog.h>

#include <sstream>
#include <thread>

#include "tests/integration/postgres_fixture.hpp"
#include "tests/support/captured_log.hpp"
#include "turnstile/testing/broker.hpp"
#include "turnstile/turnstile.hpp"

namespace turnstile::test {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

class PostgresRetention : public PostgresRoleTest {
 protected:
  /// Adds ids that were taken in `age` ago. `age` is an interval in PostgreSQL's syntax, such as "9 days".
  void old_ids(int count, const std::string& age, int handler = 1) {
    sql().exec("INSERT INTO inbox (handler, id, slot, record_offset, seen_at) SELECT " + std::to_string(handler) +
               ", gen_random_uuid(), 1, n, now() - interval '" + age + "' FROM generate_series(1, " +
               std::to_string(count) + ") n");
  }
  /// Adds a declaration that was made in the past.
  void said(const std::string& keep, const std::string& ago, int handler = 1) {
    sql().exec("INSERT INTO retention (handler, keep_s, said_at) VALUES (" + std::to_string(handler) +
               ", extract(epoch FROM interval '" + keep + "'), now() - interval '" + ago + "')");
  }
  /// Makes steps until the purger rests. Returns how many ids were deleted in total.
  std::int64_t clean(std::int64_t most = 2'000) {
    std::int64_t deleted = 0;
    sql().exec("UPDATE sweep SET due_at = now() WHERE next_block = 0");
    for (int steps = 0; steps < 2'000; ++steps) {
      const ports::PurgeStep step = store_->retention().purge_step(most);
      EXPECT_LE(step.deleted, most);
      EXPECT_FALSE(step.rivalled);
      deleted += step.deleted;
      if (step.wait > 0ms) return deleted;
    }
    ADD_FAILURE() << "the purger comes to no end";
    return deleted;
  }
  /// Adds a dead letter with the message's id. `replayed_at` is an expression of PostgreSQL.
  void dead_letter(const std::string& id, const std::string& replayed_at, int handler = 1) {
    sql().exec(
        "INSERT INTO dead (handler, slot, incarnation, record_offset, message_id, reason, error, attempts, header_names, "
        "header_values, replayed_at) SELECT " +
        std::to_string(handler) + ", 1, 1, count(*), '" + id + "', 'failed', 'e', 1, '{}', '{}', " + replayed_at +
        " FROM dead");
  }
  std::string ids_of(int handler) {
    return sql().one("SELECT count(*) FROM inbox WHERE handler = " + std::to_string(handler));
  }
};

TEST_F(PostgresRetention, what_is_old_goes_and_what_is_young_stays) {
  store_->retention().keep_ids(handler_, 8 * 24h);
  old_ids(5'000, "9 days");
  old_ids(3'000, "7 days");
  EXPECT_EQ(clean(), 5'000);
  EXPECT_EQ(ids(), "3000");
  EXPECT_EQ(clean(), 0);
}

TEST_F(PostgresRetention, old_ids_are_found_among_young_ones) {
  store_->retention().keep_ids(handler_, 8 * 24h);
  sql().exec(
      "INSERT INTO inbox (handler, id, slot, record_offset, seen_at) SELECT 1, gen_random_uuid(), 1, n, "
      "now() - (CASE WHEN n % 3 = 0 THEN '10 days' ELSE '1 hour' END)::interval FROM generate_series(1, 60000) n");
  EXPECT_EQ(clean(700), 20'000);
  EXPECT_EQ(sql().one("SELECT count(*) FROM inbox WHERE seen_at < now() - interval '8 days'"), "0");
}

TEST_F(PostgresRetention, each_handler_has_its_own) {
  const HandlerId mail = store_->register_handler("mail"), gone = store_->register_handler("gone");
  store_->retention().keep_ids(handler_, 8 * 24h);
  store_->retention().keep_ids(mail, 1h);
  old_ids(10, "1 day", handler_.value);
  old_ids(10, "1 day", mail.value);
  old_ids(10, "300 days", gone.value);
  EXPECT_EQ(clean(), 10);
  EXPECT_EQ(ids_of(handler_.value), "10");
  EXPECT_EQ(ids_of(mail.value), "0");
  EXPECT_EQ(ids_of(gone.value), "10") << "nobody has said anything of these";
}

// Another copy of the message may have taken effect since it died. Its id is all that a replay can find out by.
TEST_F(PostgresRetention, an_id_stays_while_a_dead_letter_of_its_message_may_be_replayed) {
  store_->retention().keep_ids(handler_, 8 * 24h);
  old_ids(6, "9 days");
  const auto id = [&](int n) { return sql().one("SELECT id FROM inbox WHERE record_offset = " + std::to_string(n)); };
  dead_letter(id(1), "NULL");
  dead_letter(id(2), "now() - interval '7 days'");
  dead_letter(id(3), "now() + interval '200000 years'");  // in doubt
  dead_letter(id(4), "now() - interval '9 days'");        // the record of its replay is too old by now, too
  dead_letter(id(5), "NULL", 2);                          // of another handler
  EXPECT_EQ(clean(), 3);
  EXPECT_EQ(sql().one("SELECT string_agg(record_offset::text, ' ' ORDER BY record_offset) FROM inbox"), "1 2 3");
  sql().exec("UPDATE dead SET replayed_at = now() - interval '8 days 1 minute'");
  EXPECT_EQ(clean(), 3);
}

// keep_ids_for is set to a shorter time while other consumers run with a longer one.
TEST_F(PostgresRetention, who_says_less_takes_nothing_away_from_others) {
  store_->retention().keep_ids(handler_, 30 * 24h);
  old_ids(10, "20 days");
  EXPECT_EQ(store_->retention().keep_ids(handler_, 1 * 24h).kept_for, 30 * 24h);
  EXPECT_EQ(clean(), 0);
  // The other consumers are gone, but for less than 30 days. Ids that were taken in while they relied on 30 days stay.
  sql().exec("UPDATE retention SET said_at = now() - interval '29 days' WHERE keep_s = 30 * 86400");
  EXPECT_EQ(store_->retention().keep_ids(handler_, 1 * 24h).kept_for, 30 * 24h);
  EXPECT_EQ(clean(), 0);
  sql().exec("UPDATE retention SET said_at = now() - interval '31 days' WHERE keep_s = 30 * 86400");
  EXPECT_EQ(store_->retention().keep_ids(handler_, 1 * 24h).kept_for, 24h);
  EXPECT_EQ(clean(), 10);
}

TEST_F(PostgresRetention, when_nobody_runs_any_more_what_was_said_last_holds) {
  said("30 days", "400 days");
  said("2 days", "100 days");
  old_ids(10, "3 days");
  old_ids(10, "1 day");
  EXPECT_EQ(clean(), 10);
  EXPECT_EQ(ids(), "10");
}

TEST_F(PostgresRetention, for_ever_holds_for_a_while_after_it_was_last_said) {
  store_->retention().keep_ids(handler_, std::nullopt);
  old_ids(10, "3000 days");
  EXPECT_EQ(clean(), 0);
  sql().exec("UPDATE retention SET said_at = now() - interval '9 days'");
  EXPECT_EQ(store_->retention().keep_ids(handler_, std::nullopt).kept_for, std::nullopt);
  sql().exec("UPDATE retention SET said_at = now() - interval '9 days'");
  EXPECT_EQ(clean(), 0) << "nobody says anything else";
  EXPECT_EQ(store_->retention().keep_ids(handler_, 30 * 24h).kept_for, 30 * 24h);
  EXPECT_EQ(clean(), 10);
}

TEST_F(PostgresRetention, ids_of_which_nobody_had_said_anything_get_the_default) {
  old_ids(10, "2 days");
  EXPECT_EQ(store_->retention().keep_ids(handler_, 1h).kept_for, kKeepIdsByDefault);
  EXPECT_EQ(clean(), 0);
}

// The test cannot set the server's clock. It gives the function another earlier time instead.
TEST_F(PostgresRetention, nothing_is_deleted_after_the_clock_was_set_forward) {
  store_->retention().keep_ids(handler_, 8 * 24h);
  old_ids(100, "9 days");
  sql().exec("SELECT look_at_clock(now(), now() - interval '30 days')");
  EXPECT_THAT(message_of<Error>([&] { store_->retention().purge_step(1'000); }),
              ::testing::HasSubstr("set forward by 30 d"));
  EXPECT_EQ(ids(), "100");
  EXPECT_EQ(sql().one("SELECT count(*) FROM horizon"), "0");
  // The clock is set back: the time at which the step was noticed is in the future now.
  sql().exec("UPDATE clock_step SET noticed_at = now() + interval '30 days', held_until = now() + interval '31 days'");
  EXPECT_EQ(clean(), 100);
}

TEST_F(PostgresRetention, nothing_is_deleted_by_a_process_whose_clock_differs) {
  store_->retention().keep_ids(handler_, 8 * 24h);
  old_ids(100, "9 days");
  const auto deleted = [&](const std::string& by_wall, const std::string& by_steady) {
    return sql().one("SELECT deleted FROM purge_by_clock(10, " + by_wall + ", " + by_steady + ")");
  };
  EXPECT_EQ(deleted("now() - interval '1 hour'", "NULL"), "0");
  EXPECT_EQ(deleted("now() + interval '1 hour'", "NULL"), "0");
  EXPECT_EQ(deleted("now()", "now() - interval '1 hour'"), "0") << "what it heard before";
  EXPECT_EQ(deleted("now()", "now()"), "0") << "held for all";
  sql().exec("DELETE FROM clock_step");
  EXPECT_EQ(deleted("now() - interval '4 minutes'", "now() - interval '4 minutes'"), "10");
}

TEST_F(PostgresRetention, what_was_forgotten_is_known_before_it_is_deleted) {
  store_->retention().keep_ids(handler_, 8 * 24h);
  EXPECT_EQ(store_->retention().keep_ids(handler_, 8 * 24h).all_since, std::nullopt);
  old_ids(5'000, "9 days");
  EXPECT_GT(store_->retention().purge_step(10).deleted, 0);
  const auto since = store_->retention().keep_ids(handler_, 8 * 24h).all_since;
  ASSERT_TRUE(since);
  EXPECT_EQ(sql().one("SELECT count(*) FROM inbox WHERE seen_at >= to_timestamp(" +
                      std::to_string(since->time_since_epoch().count()) + " / 1000.0)"),
            "0");
  EXPECT_EQ(sql().one("SELECT to_timestamp(" + std::to_string(since->time_since_epoch().count()) +
                      " / 1000.0) BETWEEN now() - interval '8 days 1 minute' AND now() - interval '8 days'"),
            "t");
}

TEST_F(PostgresRetention, a_response_goes_after_its_id) {
  store_->retention().keep_ids(handler_, 8 * 24h);
  old_ids(100, "9 days");
  sql().exec("INSERT INTO response (handler, id, body, replied_at) SELECT handler, id, 'x', seen_at FROM inbox");
  old_ids(10, "1 day");
  sql().exec(
      "INSERT INTO response (handler, id, body, replied_at) SELECT handler, id, 'x', now() - interval '9 days' FROM inbox "
      "WHERE seen_at > now() - interval '2 days'");
  clean();
  clean();
  EXPECT_EQ(ids(), "10");
  EXPECT_EQ(sql().one("SELECT count(*) FROM response"), "10") << "those whose ids are there";
}

TEST_F(PostgresRetention, one_cleaner_at_a_time) {
  store_->retention().keep_ids(handler_, 8 * 24h);
  old_ids(10, "9 days");
  Sql rival(schema_->url());
  rival.exec("BEGIN");
  rival.exec("SELECT pg_advisory_xact_lock(hashtextextended('turnstile.purge." + schema_->name() + "', 0))");
  EXPECT_TRUE(store_->retention().purge_step(100).rivalled);
  EXPECT_EQ(ids(), "10");
  rival.exec("COMMIT");
  EXPECT_EQ(clean(), 10);
}

TEST_F(PostgresRetention, a_row_that_somebody_holds_is_not_waited_for) {
  store_->retention().keep_ids(handler_, 8 * 24h);
  old_ids(10, "9 days");
  Sql holder(schema_->url());
  holder.exec("BEGIN");
  holder.exec("SELECT 1 FROM inbox FOR UPDATE");
  const auto began = std::chrono::steady_clock::now();
  EXPECT_THROW(clean(), StoreBusy);
  EXPECT_LT(std::chrono::steady_clock::now() - began, 5s);
  holder.exec("COMMIT");
  EXPECT_EQ(clean(), 10);
}

TEST_F(PostgresRetention, inserts_go_on_beside_a_step_that_is_open) {
  store_->retention().keep_ids(handler_, 8 * 24h);
  old_ids(1'000, "9 days");
  Sql purger(schema_->url());
  purger.exec("BEGIN");
  purger.exec("SELECT purge_step(1000) FROM generate_series(1, 3)");
  EXPECT_EQ(begin("a", 3), std::vector(3, ports::Admission::fresh));
  session_->commit();
  purger.exec("COMMIT");
  EXPECT_EQ(ids(), "3");
}

TEST_F(PostgresRetention, when_nothing_is_due_a_step_only_looks_at_the_clock_and_for_claims) {
  store_->retention().keep_ids(handler_, 8 * 24h);
  old_ids(50'000, "1 hour");
  clean();
  EXPECT_EQ(sql().one("SELECT min(due_at) > now() + interval '20 hours' FROM sweep"), "t");
  // A step that read the inbox would wait for this lock and give up.
  Sql holder(schema_->url());
  holder.exec("BEGIN; LOCK TABLE inbox, response, retention, horizon IN ACCESS EXCLUSIVE MODE");
  for (int i = 0; i < 10; ++i)
    EXPECT_EQ(store_->retention().purge_step(2'000).wait, 60s) << "claims may stand for nothing";
  holder.exec("COMMIT");
}

TEST_F(PostgresRetention, a_sweep_that_found_little_has_the_next_one_come_later) {
  store_->retention().keep_ids(handler_, 8h);
  old_ids(10'000, "1 hour");
  clean();
  const auto first = std::stol(sql().one("SELECT every_s FROM sweep WHERE leaf = 'inbox'"));
  clean();
  EXPECT_EQ(std::stol(sql().one("SELECT every_s FROM sweep WHERE leaf = 'inbox'")), 2 * first);
  for (int i = 0; i < 8; ++i) clean();
  EXPECT_EQ(sql().one("SELECT every_s FROM sweep WHERE leaf = 'inbox'"), "28800") << "as long as ids are kept, at most";
  old_ids(20'000, "1 day");
  clean();
  EXPECT_EQ(sql().one("SELECT every_s FROM sweep WHERE leaf = 'inbox'"), "3600") << "an eighth of it";
}

// --- the consumer ---

/// A consumer of the schema in this process, on a broker in memory.
class Cleaning {
 public:
  Cleaning(const PostgresSettings& settings, const std::string& topic_settings, std::chrono::milliseconds retention,
           bool purge = true) {
    const auto broker = std::make_shared<turnstile::testing::MemoryBroker>();
    broker->create_topic("payments", 1, retention);
    Config config = Config::parse("[topics.payments]\nhandler = \"charge\"\n" + topic_settings, "test.toml");
    config.postgres = settings;
    config.consumer.purge = purge;
    app_ = std::make_unique<Consumer>(config, Backends{broker, postgres::open_store(settings)});
    app_->topic("payments", [](const Message&, Context&) {} | transactional());
    app_->handle_signals(false).logger(std::make_shared<spdlog::logger>("cleaning", log_.sink()));
    thread_ = std::thread([this] { app_->run(); });
  }
  ~Cleaning() { stop(); }
  std::string stop() {
    app_->stop();
    if (thread_.joinable()) thread_.join();
    return log_.str();
  }

 private:
  test::CapturedLog log_;
  std::unique_ptr<Consumer> app_;
  std::thread thread_;
};

TEST_F(PostgresRetention, a_consumer_deletes_old_ids_by_itself) {
  sql().exec("INSERT INTO retention VALUES (1, 691200, now() - interval '9 days')");
  old_ids(5'000, "9 days");
  old_ids(10, "7 days");
  Cleaning consumer(schema_->settings(), "keep_ids_for = \"8d\"\n", 24h);
  EXPECT_TRUE(eventually([&] { return ids() == "10"; }));
  EXPECT_EQ(sql().one("SELECT keep_s FROM kept"), "691200");
}

TEST_F(PostgresRetention, one_with_purge_off_says_what_it_needs_and_deletes_nothing) {
  old_ids(10, "300 days");
  {
    Cleaning consumer(schema_->settings(), "keep_ids_for = \"100d\"\n", 24h, false);
    EXPECT_TRUE(eventually([&] { return sql().one("SELECT max(keep_s) FROM retention") == "8640000"; }));
  }
  EXPECT_EQ(ids(), "10");
  EXPECT_EQ(sql().one("SELECT count(*) FROM sweep"), "0");
}

TEST_F(PostgresRetention, without_a_setting_ids_are_kept_a_day_longer_than_the_topic_can_hold_a_record) {
  const auto kept = [&](std::chrono::milliseconds retention) {
    sql().exec("DELETE FROM retention");
    Cleaning consumer(schema_->settings(), "", retention);
    EXPECT_TRUE(eventually([&] { return sql().one("SELECT count(*) FROM retention") == "1"; }));
    return sql().one("SELECT keep_s FROM kept");
  };
  EXPECT_EQ(kept(30 * 24h), std::to_string(38 * 86'400))
      << "7 days more, since a segment is as long where nobody says otherwise";
  EXPECT_EQ(kept(std::chrono::milliseconds::max()), "3155760000") << "forever";
}

// keep_ids_for is set to a shorter time while other consumers run.
TEST_F(PostgresRetention, a_consumer_with_less_deletes_nothing_that_one_with_more_counts_on) {
  sql().exec("INSERT INTO retention VALUES (1, 3600, now() - interval '99 days')");
  Cleaning longer(schema_->settings(), "keep_ids_for = \"30d\"\n", 24h, false);
  EXPECT_TRUE(eventually([&] { return sql().one("SELECT keep_s FROM kept") == "2592000"; }));
  old_ids(10, "20 days");
  old_ids(10, "40 days");
  Cleaning shorter(schema_->settings(), "keep_ids_for = \"10d\"\n", 24h);
  EXPECT_TRUE(eventually([&] { return ids() == "10"; }));
  EXPECT_EQ(sql().one("SELECT count(*) FROM inbox WHERE seen_at > now() - interval '30 days'"), "10");
  EXPECT_THAT(
      shorter.stop(),
      HasSubstr(
          "ids of handler charge are kept for 30 d, as other or earlier consumers have declared; this process needs them for 10 d"));
}

// --- rights ---

class PostgresRetentionRights : public PostgresRetention {
 protected:
  void SetUp() override {
    PostgresRetention::SetUp();
    if (IsSkipped()) return;
    app_->grant_from_file();
    open(app_->settings());
  }
  void refused(Sql& who, const std::string& statement) {
    try {
      who.exec(statement);
      ADD_FAILURE() << "was allowed: " << statement;
    } catch (const std::runtime_error& error) {
      EXPECT_THAT(error.what(), HasSubstr("permission denied"));
    }
  }
};

TEST_F(PostgresRetentionRights, a_consumer_has_old_ids_deleted_and_no_young_ones) {
  store_->retention().keep_ids(handler_, 8 * 24h);
  old_ids(10, "9 days");
  old_ids(10, "1 day");
  Sql app(app_->url());
  refused(app, "DELETE FROM inbox");
  refused(app, "UPDATE retention SET said_at = '2000-01-01'");
  refused(app, "DELETE FROM retention");
  refused(app, "INSERT INTO retention VALUES (1, 1, now())");
  refused(app, "UPDATE horizon SET forgotten_before = now()");
  refused(app, "UPDATE sweep SET due_at = now()");
  refused(app, "SELECT partition_inbox(1, true)");
  // The declarations that the role may make do not help it. A shorter time is in effect only after the time of the
  // earlier declaration has passed.
  for (const char* less : {"1", "0", "-5", "-9223372036854775808"}) {
    try {
      app.exec("SELECT keep_ids(1::smallint, " + std::string(less) + ")");
    } catch (const std::runtime_error& error) {
      EXPECT_THAT(error.what(), HasSubstr("retention_keep_s_check"));
    }
  }
  EXPECT_EQ(clean(1'000'000), 10);
  EXPECT_EQ(ids(), "10");
}

// A function that runs with the owner's rights must not find its names where its caller can put objects.
TEST_F(PostgresRetentionRights, temporary_tables_and_paths_of_the_caller_mean_nothing) {
  store_->retention().keep_ids(handler_, 8 * 24h);
  old_ids(10, "1 day");
  Sql app(app_->url());
  app.exec(
      "CREATE TEMPORARY TABLE kept (handler smallint, keep_s bigint); INSERT INTO kept VALUES (1, 1);"
      "CREATE TEMPORARY TABLE retention (handler smallint, keep_s bigint, said_at timestamptz);"
      "CREATE TEMPORARY TABLE horizon (handler smallint PRIMARY KEY, forgotten_before timestamptz);"
      "INSERT INTO horizon VALUES (1, now());"
      "CREATE TEMPORARY TABLE sweep (leaf name PRIMARY KEY, next_block bigint, end_block bigint, deleted bigint, "
      "every_s bigint, due_at timestamptz, swept_at timestamptz);"
      "SET search_path = pg_temp, " +
      schema_->name());
  for (int i = 0; i < 4; ++i) app.exec("SELECT " + schema_->name() + ".purge_step(1000)");
  EXPECT_EQ(ids(), "10");
  EXPECT_EQ(app.one("SELECT count(*) FROM pg_temp.sweep"), "0");
}

TEST_F(PostgresRetentionRights, others_may_not_even_ask) {
  const std::string guest = schema_->name() + "_guest";
  sql().exec("CREATE ROLE " + guest + " LOGIN PASSWORD 'guest'; GRANT USAGE ON SCHEMA " + schema_->name() + " TO " +
             guest);
  {
    Sql who(with_parameter(with_parameter(schema_->url(), "user", guest), "password", "guest"));
    refused(who, "SELECT purge_step(1000)");
    refused(who, "SELECT keep_ids(1::smallint, 1)");
  }
  sql().exec("DROP OWNED BY " + guest + "; DROP ROLE " + guest);
}

}  // namespace
}  // namespace turnstile::test
