// turnstile dlq replay of many dead letters, and after an edit, on a real PostgreSQL and a real Kafka. Also the commands
// of docs/operations/dead-letters.md.

#include <gmock/gmock.h>

#include <csignal>

#include "tests/integration/cli_dlq.hpp"
#include "tests/integration/page_commands.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/world.hpp"

namespace turnstile::test {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(CliReplay, a_dry_run_publishes_nothing_and_says_how_many_and_how_long) {
  for (int offset = 0; offset < 21; ++offset) bury(offset, "'{}'");
  bury(21, "'{}'", "unknown");
  bury(22, "'{}'", "duplicate");
  sql("UPDATE dead SET replayed_at = clock_timestamp() + interval '200000 years' WHERE id = 1");
  const auto dry = cli_.run("dlq", "replay", "--all", "--rate", "10/m", "--dry-run");
  EXPECT_EQ(dry.code, 0) << dry.err;
  EXPECT_THAT(dry.out,
              AllOf(HasSubstr("EXAMPLE\n"), HasSubstr("would replay 20 dead letters in 1m 54s at 10/m"),
                    HasSubstr(topic_), HasSubstr("would skip 1 dead letter: unknown, so an operator has to decide"),
                    HasSubstr("would skip 1 dead letter: duplicates"),
                    HasSubstr("would skip 1 dead letter: may have been published")));
  EXPECT_EQ(sql("SELECT count(*) FROM dead WHERE replayed_at < now()"), "0");
  const auto json =
      nlohmann::json::parse(cli_.run("dlq", "replay", "--all", "--rate", "10/m", "--dry-run", "--json").out);
  EXPECT_EQ(json["would_replay"], 20);
  EXPECT_EQ(json["seconds"], 114.0);
}

TEST_F(CliReplay, filters_choose_what_is_replayed) {
  for (int offset = 0; offset < 4; ++offset) bury(offset, "'{\"amount\": " + std::to_string(offset) + "}'");
  sql("UPDATE dead SET died_at = died_at - interval '1 day' WHERE id = 1");
  EXPECT_THAT(cli_.run("dlq", "replay", "--all", "--since", "1h ago", "--text", "\"amount\": 2").out,
              HasSubstr("3 -> " + topic_));
  EXPECT_THAT(cli_.run("dlq", "replay", "--all", "--until", "1h ago", "--header", "message-id=order-17").out,
              HasSubstr("1 -> " + topic_));
  EXPECT_EQ(sql("SELECT string_agg(id::text, ' ' ORDER BY id) FROM dead WHERE replayed_at IS NULL"), "2 4");
}

TEST_F(CliReplay, a_rate_is_kept) {
  for (int offset = 0; offset < 11; ++offset) bury(offset, "'{}'");
  const auto began = std::chrono::steady_clock::now();
  const auto replay = cli_.run("dlq", "replay", "--all", "--rate", "5/s");
  EXPECT_EQ(replay.code, 0) << replay.err;
  EXPECT_GE(std::chrono::steady_clock::now() - began, 2s);
  EXPECT_EQ(sql("SELECT count(*) FROM dead WHERE replayed_at IS NOT NULL"), "11");
}

TEST_F(CliReplay, wrong_rates_and_options_are_refused) {
  bury(7, "'{}'");
  const auto refused = cli_.run("dlq", "replay", "--all", "--rate", "fast");
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err,
              HasSubstr("--rate fast: not a rate; write a number from 1 to 1000000 and a unit, as in 100/s"));
  EXPECT_THAT(cli_.run("dlq", "replay", "1", "--rate", "1/s").err, HasSubstr("--rate and --dry-run go with --all"));
  EXPECT_THAT(cli_.run("dlq", "replay", "1", "--text", "x").err, HasSubstr("go with --all"));
}

TEST_F(CliReplay, an_edited_letter_is_replayed_with_its_new_record_and_its_id) {
  bury(7, "'{\"amount\": 12}'");
  ASSERT_EQ(cli_.run("dlq", "edit", "1", "--value", "{\"amount\": 13}", "--header", "trace=x").code, 0);
  ASSERT_EQ(cli_.run("dlq", "replay", "1").code, 0);
  const auto sent = kafka_.read(topic_, 1).at(0);
  EXPECT_EQ(sent.payload, "{\"amount\": 13}");
  EXPECT_EQ(sent.key, "k-1");
  EXPECT_EQ(header(sent, "message-id"), "order-17");
  EXPECT_EQ(header(sent, "trace"), "x");
  EXPECT_EQ(cli_.run("dlq", "edit", "1", "--value", "late").code, 4);
}

TEST_F(CliReplay, an_edited_letter_that_had_no_id_is_one_of_all) {
  for (int offset = 0; offset < 3; ++offset) bury(offset, "'{}'", "missing_id");
  ASSERT_EQ(cli_.run("dlq", "edit", "2", "--header", "trace=mended").code, 0);
  EXPECT_THAT(
      cli_.run("dlq", "replay", "--all", "--dry-run").out,
      AllOf(HasSubstr("would replay 1 dead letter"), HasSubstr("would skip 2 dead letters: missing_id, which would")));
  EXPECT_EQ(cli_.run("dlq", "replay", "--all").code, 0);
  EXPECT_EQ(sql("SELECT string_agg(id::text, ' ') FROM dead WHERE replayed_at IS NOT NULL"), "2");
}

/// The replay has read the letter, and waits for the broker, while another operator edits it.
TEST_F(CliReplay, nobody_edits_a_letter_that_is_being_replayed) {
  const auto mock = broker_without_answer(60s);
  bury(7, "'{}'");
  const CliProcess runs({"dlq", "replay", "1"}, cli_.environment(), cli_.folder().path());
  ASSERT_TRUE(eventually([&] {
    return sql("SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE datname = current_database() AND "
               "relation = 'dead'::regclass AND mode = 'RowExclusiveLock'") != "0";
  }));
  const auto edit = cli_.run("dlq", "edit", "1", "--value", "x");
  EXPECT_EQ(edit.code, 3) << edit.out;
  EXPECT_THAT(edit.err, HasSubstr("lock timeout"));
  EXPECT_EQ(sql("SELECT edits FROM dead"), "0");
}

/// The replay has read the letter, and waits for its row, while another operator's edit is committed.
class CliReplayBehindEdit : public CliReplay {
 protected:
  Finished replay(std::vector<std::string> which) {
    pqxx::connection connection(url_);
    pqxx::work lock(connection);
    lock.exec("SELECT FROM " + schema_ + ".dead WHERE replayed_at IS NULL FOR UPDATE");
    CliProcess edit({"dlq", "edit", "1", "--value", std::to_string(++edits_)}, cli_.environment(),
                    cli_.folder().path());
    EXPECT_TRUE(waiting("1"));
    which.insert(which.begin(), {"dlq", "replay"});
    CliProcess replay(which, cli_.environment(), cli_.folder().path());
    EXPECT_TRUE(waiting("2"));
    lock.commit();
    EXPECT_EQ(edit.wait(30s).code, 0);
    return replay.wait(30s);
  }

 private:
  bool waiting(const std::string& sessions) {
    return eventually([&] {
      return sql("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database() "
                 "AND pid IN "
                 "(SELECT pid FROM pg_locks WHERE relation = 'dead'::regclass)") == sessions;
    });
  }
  int edits_ = 0;
};

/// It ended with 0, and reported another replay.
TEST_F(CliReplayBehindEdit, a_letter_that_was_edited_meanwhile_is_not_published) {
  bury(7, "'{}'");
  for (const bool by_place : {false, true}) {
    if (by_place) know_by_place(7);
    const auto one = replay({"1"});
    EXPECT_EQ(one.code, 4) << one.out;
    EXPECT_THAT(one.err, AllOf(HasSubstr("dead letter 1: another operator has edited it meanwhile"),
                               HasSubstr("turnstile dlq show 1"), HasSubstr("code=operation_refused")));
  }
  const auto all = replay({"--all"});
  EXPECT_EQ(all.code, 0) << all.err;
  EXPECT_THAT(all.out, AllOf(HasSubstr("1 skipped: another operator has edited it meanwhile, and it waits as before\n"),
                             HasSubstr("1 dead letter skipped: another operator was faster"),
                             Not(HasSubstr("nothing to replay"))));
  auto json = nlohmann::json::parse(replay({"--all", "--json"}).out);
  EXPECT_EQ(json["replayed"].size(), 0U);
  EXPECT_EQ(json["changed_meanwhile"][0]["number"], 1);
  EXPECT_EQ(sql("SELECT count(*) FROM dead WHERE replayed_at IS NULL"), "1");
}

TEST_F(CliReplay, a_dry_run_skips_letters_whose_topic_is_missing) {
  bury(7, "'{}'");
  read_from("no-such-topic");
  const auto dry = cli_.run("dlq", "replay", "--all", "--dry-run");
  EXPECT_EQ(dry.code, 0) << dry.err;
  EXPECT_THAT(dry.out, AllOf(HasSubstr("would replay 0 dead letters"),
                             HasSubstr("would skip 1 dead letter: topic no-such-topic does not exist")));
  auto json = nlohmann::json::parse(cli_.run("dlq", "replay", "--all", "--dry-run", "--json").out);
  EXPECT_EQ(json["would_replay"], 0);
  EXPECT_EQ(json["would_skip"][0]["count"], 1);
}

TEST_F(CliReplay, a_record_that_is_too_large_is_refused) {
  bury(7, "convert_to(repeat('x', 5000), 'utf8')");
  read_from(kafka_.create_topic(4, {{"max.message.bytes", "1000"}}));
  const auto replay = cli_.run("dlq", "replay", "1");
  EXPECT_EQ(replay.code, 4) << replay.out;
  EXPECT_THAT(replay.err, AllOf(HasSubstr("too large"), HasSubstr("turnstile dlq edit 1")));
  EXPECT_EQ(sql("SELECT count(*) FROM dead WHERE replayed_at IS NULL"), "1");
}

/// Dead letters of World's topic, whose ids are in the header message-id.
class ReplayToConsumer : public ::testing::Test {
 protected:
  void SetUp() override {
    TURNSTILE_NEEDS_SERVERS();
    world_ = std::make_unique<World>(1);
    cli_.environment()["TURNSTILE_POSTGRES_URL"] = *postgres_url();
    cli_.environment()["TURNSTILE_POSTGRES_SCHEMA"] = world_->schema();
    cli_.environment()["TURNSTILE_KAFKA_BOOTSTRAP_SERVERS"] = kafka_servers();
  }

  void run_sql(const std::string& sql) { static_cast<void>(world_->query(sql)); }

  std::unique_ptr<World> world_;
  Cli cli_;
};

/// The replay is killed after the broker has a record, and before its row is marked. The next one publishes it again.
TEST_F(ReplayToConsumer, a_replay_that_was_killed_goes_on_and_no_effect_happens_twice) {
  World& world = *world_;
  {
    Process failing = world.consumer(world.toml());
    for (int i = 0; i < 5; ++i) world.publish("m" + std::to_string(i), "throw");
    ASSERT_TRUE(eventually([&] { return world.query("SELECT count(*) FROM dead") == "5" && world.caught_up(); }, 60s))
        << world.output();
    failing.signal(SIGTERM);
    ASSERT_EQ(failing.wait(30s), 0);
  }
  ASSERT_EQ(world.effects().rows, 0);
  // The commit of the third mark does not end.
  run_sql(
      "CREATE FUNCTION linger() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(600); RETURN NULL; END'");
  run_sql(
      "CREATE CONSTRAINT TRIGGER linger AFTER UPDATE ON dead DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.id = 3) "
      "EXECUTE FUNCTION linger()");
  Process healed = world.consumer(world.toml(), {{"HEALED", "1"}});
  {
    const CliProcess replay({"dlq", "replay", "--all"}, cli_.environment(), cli_.folder().path());
    ASSERT_TRUE(eventually([&] { return world.effects().rows == 3; }, 60s)) << world.output();
    replay.signal(SIGKILL);
  }
  // The server ends the transaction of the dead client.
  run_sql(
      "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND query = 'COMMIT'");
  ASSERT_TRUE(eventually([&] {
    return world.query("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND query = 'COMMIT'") ==
           "0";
  }));
  run_sql("DROP TRIGGER linger ON dead");
  EXPECT_EQ(world.query("SELECT string_agg(id::text, ' ' ORDER BY id) FROM dead WHERE replayed_at IS NULL"), "3 4 5");

  const auto rest = cli_.run("dlq", "replay", "--all");
  EXPECT_EQ(rest.code, 0) << rest.err;
  EXPECT_THAT(rest.out, HasSubstr("3 dead letters replayed"));
  EXPECT_TRUE(eventually([&] { return world.effects().distinct == 5 && world.caught_up(); }, 60s)) << world.output();
  EXPECT_EQ(world.effects().rows, 5) << "an effect happened twice";
}

TEST_F(CliReplay, the_commands_of_the_page_run_as_written) {
  for (int offset = 1; offset <= 6; ++offset) bury(offset, "'{\"amount\": 12}'", offset == 3 ? "rejected" : "failed");
  sql("UPDATE dead SET died_at = died_at - interval '40 days', replayed_at = now() WHERE id = 4");
  EXPECT_GE(run_page(cli_, "operations/dead-letters.md", topic_), 7);
  EXPECT_EQ(sql("SELECT string_agg(id::text, ' ' ORDER BY id) FROM dead WHERE replayed_at IS NOT NULL"), "1 2 3 5 6");
}

}  // namespace
}  // namespace turnstile::test
