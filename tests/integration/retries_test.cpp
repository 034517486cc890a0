// Long retries on a real PostgreSQL and the real Kafka: killed processes, operators, and the audit afterwards.

#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/integration/page_commands.hpp"
#include "tests/support/cli.hpp"
#include "tests/support/running.hpp"
#include "tests/support/world.hpp"
#include "turnstile/turnstile.hpp"

namespace turnstile::test {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

class Retries : public ::testing::Test {
 protected:
  void SetUp() override { TURNSTILE_NEEDS_SERVERS(); }

  static std::string toml(const World& world, const std::string& backoff, const std::string& durable = "wait",
                          int attempts = 30) {
    return world.toml("order = \"key\"\nbatch = 20\nretry = { durable = \"" + durable +
                          "\", attempts = " + std::to_string(attempts) + ", backoff = \"" + backoff + "\" }",
                      "lock_timeout = \"1s\"\n");
  }
  /// Runs the command line with this configuration.
  static void configure(Cli& cli, const std::string& toml) {
    cli.folder().write("turnstile.toml", toml);
    cli.environment()["TURNSTILE_CONFIG"] = (cli.folder().path() / "turnstile.toml").string();
  }
  static std::string stored(const World& world) { return world.query("SELECT count(*) FROM retry"); }
  /// The ids of a key, in the order in which they took effect.
  static std::string effects_of(const World& world, const std::string& key) {
    return world.query("SELECT string_agg(id, ' ' ORDER BY seq) FROM effect WHERE record_key = '" + key + "'");
  }
};

class RetriesKilledAt : public Retries, public ::testing::WithParamInterface<const char*> {};

TEST_P(RetriesKilledAt, each_message_takes_effect_once_in_the_order_of_its_key) {
#if !defined(TURNSTILE_FAILPOINTS)
  GTEST_SKIP() << "this build has no failpoints";
#endif
  World world(WorldOptions{.partitions = 2, .session_timeout_ms = 3'000, .handler_timeout = "2s"});
  for (int i = 0; i < 120; ++i) {
    const std::string id = "m" + std::to_string(100 + i), key = "k" + std::to_string(i % 12);
    const std::string fails = (i % 6 == 0 ? "sql-throw-once:" : "throw-once:") + world.folder() + "/" + id;
    world.publish(id, i % 3 == 0 ? fails : "p", key);
    if (i % 10 == 0) world.publish(id, "p", key);  // a copy
  }
  const std::string config = toml(world, "200ms..400ms");
  Process victim = world.consumer(config, {{"TURNSTILE_FAILPOINT", std::string(GetParam()) + ":3"}});
  EXPECT_EQ(victim.wait(60s), -SIGKILL) << "the victim did not come by " << GetParam() << "\n" << world.output();
  Process successor = world.consumer(config);
  EXPECT_TRUE(eventually([&] { return world.effects().distinct == 120; }, 90s)) << world.output();
  EXPECT_TRUE(eventually([&] { return world.caught_up() && stored(world) == "0"; }, 30s)) << world.output();
  EXPECT_EQ(world.effects().rows, 120);
  for (int key = 0; key < 12; ++key) {
    std::string expected;
    for (int i = key; i < 120; i += 12) expected += (expected.empty() ? "m" : " m") + std::to_string(100 + i);
    EXPECT_EQ(effects_of(world, "k" + std::to_string(key)), expected);
  }
  EXPECT_EQ(world.query("SELECT count(*) FROM dead"), "0");
  Cli cli;
  configure(cli, config);
  const auto audit = cli.run("audit", "--topic", world.topic());
  EXPECT_EQ(audit.code, 0) << audit.out << audit.err;
  successor.signal(SIGTERM);
  EXPECT_EQ(successor.wait(20s), 0) << world.output();
}

INSTANTIATE_TEST_SUITE_P(EachStep, RetriesKilledAt,
                         ::testing::Values("before-retry-stored", "after-retry-stored", "before-commit", "after-relay"),
                         step_name);

TEST_F(Retries, a_message_waits_in_the_database_while_its_partition_goes_on) {
  World world(1);
  const std::string down = world.folder() + "/down";
  std::ofstream(down) << "down";
  const std::string config = toml(world, "1h..1h");
  Process consumer = world.consumer(config);
  world.publish("a1", "service:" + down, "a");
  world.publish("b1", "p", "b");
  world.publish("a2", "p", "a");
  world.publish("b2", "p", "b");
  EXPECT_TRUE(eventually([&] { return world.caught_up() && stored(world) == "2"; }, 60s)) << world.output();
  EXPECT_EQ(effects_of(world, "b"), "b1 b2");
  EXPECT_EQ(effects_of(world, "a"), "");

  Cli cli;
  configure(cli, config);
  EXPECT_THAT(cli.run("retries", "list").out,
              AllOf(HasSubstr("the service does not answer"), HasSubstr("behind its key"),
                    HasSubstr("1 not due, 0 due, 1 behind an earlier message of their key, 0 sent and not settled")));
  const auto audit = cli.run("audit", "--topic", world.topic(), "--json");
  EXPECT_EQ(audit.code, 0) << audit.out << audit.err;
  const Json list = Json::parse(cli.run("retries", "list", "--key", "a", "--json").out);
  ASSERT_EQ(list["retries"].size(), 2U);
  EXPECT_EQ(list["more"], false);
  EXPECT_THAT(cli.run("retries", "list", "--most", "2").out, Not(HasSubstr("there are more")));
  EXPECT_THAT(cli.run("retries", "list", "--most", "1").out, HasSubstr("there are more: --most N"));
  EXPECT_EQ(Json::parse(cli.run("retries", "list", "--most", "1", "--json").out)["more"], true);
  EXPECT_EQ(list["retries"][0]["attempts"], 1);
  const std::string first = list["retries"][0]["number"].dump(), second = list["retries"][1]["number"].dump();
  EXPECT_EQ(cli.run("retries", "now", second).code, 1) << "it is behind its key";
  EXPECT_EQ(cli.run("retries", "now", "1000000").code, 1);
  EXPECT_EQ(cli.run("retries", "now").code, 2);
  EXPECT_EQ(cli.run("retries", "drop", first, "--all").code, 2);

  // A consumer that starts again finds nothing to do.
  consumer.signal(SIGKILL);
  consumer.wait(20s);
  Process next = world.consumer(config);
  std::filesystem::remove(down);
  EXPECT_THAT(cli.run("retries", "now", first).out, HasSubstr("1 message is due now"));
  EXPECT_TRUE(eventually([&] { return effects_of(world, "a") == "a1 a2"; }, 60s)) << world.output();
  EXPECT_TRUE(eventually([&] { return stored(world) == "0"; })) << world.output();
  EXPECT_EQ(world.query("SELECT max(attempt) FROM effect"), "2");
  EXPECT_EQ(world.effects().rows, 4);
}

TEST_F(Retries, what_an_operator_drops_is_a_dead_letter_and_the_next_of_its_key_runs) {
  World world(1);
  const std::string config = toml(world, "1h..1h");
  Process consumer = world.consumer(config);
  world.publish("a1", "throw", "a");
  world.publish("a2", "p", "a");
  EXPECT_TRUE(eventually([&] { return world.caught_up() && stored(world) == "2"; }, 60s)) << world.output();
  Cli cli;
  configure(cli, config);
  const Json list = Json::parse(cli.run("retries", "list", "--json").out);
  EXPECT_THAT(cli.run("retries", "drop", list["retries"][0]["number"].dump()).out, HasSubstr("dropped: 1 message"));
  EXPECT_TRUE(eventually([&] { return effects_of(world, "a") == "a2"; }, 60s)) << world.output();
  EXPECT_EQ(world.query("SELECT reason FROM dead"), "dropped");
  // A copy, as a record that is delivered again after a rebalance, does not run.
  world.publish("a1", "p", "a");
  world.publish("a3", "p", "a");
  EXPECT_TRUE(eventually([&] { return world.caught_up() && stored(world) == "0"; }, 30s));
  EXPECT_EQ(effects_of(world, "a"), "a2 a3");
  const auto audit = cli.run("audit", "--topic", world.topic());
  EXPECT_EQ(audit.code, 0) << audit.out << audit.err;
  // Its replay does.
  consumer.signal(SIGTERM);
  EXPECT_EQ(consumer.wait(20s), 0) << world.output();
  Process healed = world.consumer(config, {{"HEALED", "yes"}});
  // The consumer reads the record before the replay is recorded.
  static_cast<void>(world.query(
      "CREATE FUNCTION wait_for_effect() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN FOR i IN 1..300 LOOP EXIT WHEN EXISTS "
      "(SELECT FROM " +
      world.schema() +
      ".effect WHERE id = 'a1'); PERFORM pg_sleep(0.1); END LOOP; RETURN NULL; END$$; "
      "CREATE CONSTRAINT TRIGGER wait_for_effect AFTER UPDATE ON dead DEFERRABLE INITIALLY DEFERRED FOR EACH ROW "
      "WHEN (NEW.replayed_at < now() + interval '1 year') EXECUTE FUNCTION wait_for_effect()"));
  const auto replay = cli.run("dlq", "replay", "--reason", "dropped", "--all");
  EXPECT_EQ(replay.code, 0) << replay.out << replay.err;
  EXPECT_TRUE(eventually([&] { return effects_of(world, "a") == "a2 a3 a1"; }, 60s)) << world.output();
  // An effect that is lost is found, although its message was a dead letter.
  healed.signal(SIGTERM);
  EXPECT_EQ(healed.wait(20s), 0) << world.output();
  EXPECT_EQ(cli.run("audit", "--topic", world.topic()).code, 0);
  static_cast<void>(world.query("DELETE FROM inbox WHERE record_offset = (SELECT max(record_offset) FROM inbox)"));
  const auto lost = cli.run("audit", "--topic", world.topic());
  EXPECT_EQ(lost.code, 1) << lost.out;
  EXPECT_THAT(lost.out, HasSubstr("did not take effect"));
}

TEST_F(Retries, what_is_dropped_again_after_a_replay_and_a_rewind_waits_again) {
  World world(1);
  const std::string config = toml(world, "1h..1h");
  Process consumer = world.consumer(config);
  world.publish("a1", "throw", "a");
  EXPECT_TRUE(eventually([&] { return world.caught_up() && stored(world) == "1"; }, 60s)) << world.output();
  Cli cli;
  configure(cli, config);
  EXPECT_EQ(cli.run("retries", "drop", "--all").code, 0);
  consumer.signal(SIGTERM);
  EXPECT_EQ(consumer.wait(20s), 0) << world.output();
  EXPECT_EQ(cli.run("dlq", "replay", "--all", "--reason", "dropped").code, 0);
  const auto rewind = cli.run("rewind", world.topic(), "--to", "1h ago", "--yes");
  EXPECT_EQ(rewind.code, 0) << rewind.out << rewind.err;
  Process next = world.consumer(config);
  EXPECT_TRUE(eventually([&] { return world.caught_up() && stored(world) == "1"; }, 60s)) << world.output();
  EXPECT_EQ(world.query("SELECT r.record_offset = d.record_offset FROM retry r, dead d"), "t");
  EXPECT_EQ(cli.run("retries", "drop", "--all").code, 0);
  EXPECT_EQ(world.query("SELECT reason FROM dead WHERE replayed_at IS NULL"), "dropped");
  const auto audit = cli.run("audit", "--topic", world.topic());
  EXPECT_EQ(audit.code, 0) << audit.out << audit.err;
}

TEST_F(Retries, a_message_that_fails_at_each_attempt_is_one_dead_letter) {
  World world(1);
  const std::string config = toml(world, "100ms..100ms", "pass", 3);
  Process consumer = world.consumer(config);
  world.publish("a1", "throw", "a");
  world.publish("a2", "p", "a");
  EXPECT_TRUE(eventually([&] { return world.query("SELECT count(*) FROM dead") == "1"; }, 60s)) << world.output();
  EXPECT_EQ(world.query("SELECT reason || ' after ' || attempts FROM dead"), "failed after 3");
  EXPECT_TRUE(eventually([&] { return world.caught_up() && stored(world) == "0"; }, 30s)) << world.output();
  EXPECT_EQ(effects_of(world, "a"), "a2");
  Cli cli;
  configure(cli, config);
  const auto audit = cli.run("audit", "--topic", world.topic());
  EXPECT_EQ(audit.code, 0) << audit.out << audit.err;
  // Of its three records only the first one would run again.
  const auto rewind = cli.run("rewind", world.topic(), "--to", "1h ago", "--dry-run", "--json");
  ASSERT_EQ(rewind.code, 0) << rewind.err;
  const Json counted = Json::parse(rewind.out);
  EXPECT_EQ(counted["records"], 4);
  EXPECT_EQ(counted["duplicates"], 1);
  EXPECT_EQ(counted["run"], 1);
  EXPECT_EQ(counted["retries_over"], 2);
}

// The relay cannot remove the entry of what it sent while a transaction has locked it: that of the handler does, and may
// wait for its COMMIT.
TEST_F(Retries, a_message_whose_entry_is_locked_is_sent_once) {
  World world(1);
  const std::string config = toml(world, "4s..4s");
  Process consumer = world.consumer(config);
  world.publish("a1", "throw-once:" + world.folder() + "/a1", "a");
  ASSERT_TRUE(eventually([&] { return stored(world) == "1"; }, 60s)) << world.output();
  std::thread locking([&] {
    EXPECT_EQ(world.query("WITH due AS (SELECT id FROM retry_due FOR UPDATE) "
                          "SELECT count(*) || pg_sleep(6)::text FROM due"),
              "1");
  });
  EXPECT_TRUE(eventually([&] { return effects_of(world, "a") == "a1"; }, 60s)) << world.output();
  locking.join();
  EXPECT_TRUE(eventually([&] { return world.caught_up() && stored(world) == "0"; }, 30s)) << world.output();
  Cli cli;
  configure(cli, config);
  const auto rewind = cli.run("rewind", world.topic(), "--to", "1h ago", "--dry-run", "--json");
  ASSERT_EQ(rewind.code, 0) << rewind.err;
  EXPECT_EQ(Json::parse(rewind.out)["records"], 2);
}

// By default the name of its handler is the topic's too.
TEST_F(Retries, a_group_that_counts_offsets_does_not_run_what_another_group_sends_again) {
  World world(1), other(1);
  Process consumer = world.consumer(toml(world, "1s..1s"));
  world.publish("a", "throw-once:" + world.folder() + "/a", "k");
  EXPECT_TRUE(eventually([&] { return stored(world) == "1"; }, 60s)) << world.output();
  std::string config = other.toml("mode = \"by_offset\"");
  const std::string of_other = "[topics.\"" + other.topic();
  config.replace(config.find(of_other), of_other.size(), "[topics.\"" + world.topic());
  const std::string file = other.folder() + "/config.toml";
  std::ofstream(file) << config;
  Process reader(std::string(TURNSTILE_BIN_DIR) + "/consumer", {file, world.topic(), other.schema()}, {},
                 other.folder() + "/output");
  EXPECT_TRUE(eventually([&] { return effects_of(world, "k") == "a"; }, 60s)) << world.output();
  world.publish("b", "p", "k");
  EXPECT_TRUE(eventually([&] { return other.query("SELECT count(*) FROM effect WHERE id = 'b'") == "1"; }, 60s))
      << other.output();
  EXPECT_EQ(effects_of(other, "k"), "a b");
}

// Kafka deleted the record for its age, for example.
TEST_F(Retries, a_message_whose_record_was_lost_is_sent_again) {
  World world(1);
  const std::string config = toml(world, "1h..1h");
  Process consumer = world.consumer(config);
  world.publish("a1", "throw-once:" + world.folder() + "/a1", "a");
  world.publish("a2", "p", "a");
  world.publish("b1", "throw-once:" + world.folder() + "/b1", "b");
  EXPECT_TRUE(eventually([&] { return world.caught_up() && stored(world) == "3"; }, 60s)) << world.output();
  consumer.signal(SIGTERM);
  EXPECT_EQ(consumer.wait(20s), 0) << world.output();
  Cli cli;
  configure(cli, config);
  const auto lose = [&](const std::string& id, const std::string& ago) {
    static_cast<void>(world.query("WITH sent AS (UPDATE retry SET due_at = now() - interval '" + ago +
                                  "' WHERE record_key = '" + id + "' AND due_at < 'infinity' RETURNING id) " +
                                  "DELETE FROM retry_due d USING sent WHERE d.id = sent.id"));
  };
  static_cast<void>(
      world.query("SELECT refuse_retry(id, (extract(epoch FROM due_at) * 1000000)::bigint, 'too large') FROM retry "
                  "WHERE record_key = 'b'"));
  EXPECT_THAT(cli.run("retries", "list", "--key", "b").out, HasSubstr("refused by the broker: outbox record 1"));
  lose("a", "2 hours");
  lose("b", "10 minutes");
  static_cast<void>(world.query("UPDATE retry_sweep SET next_at = now(), began_at = now() - interval '90 minutes'"));
  Process next = world.consumer(config);
  EXPECT_TRUE(eventually([&] { return effects_of(world, "a") == "a1 a2"; }, 60s)) << world.output();
  EXPECT_EQ(stored(world), "1") << "b1 was sent a short while ago";
  EXPECT_THAT(cli.run("retries", "now", "--key", "b").out, HasSubstr("0 messages are due now"));
  EXPECT_THAT(cli.run("retries", "now", "--key", "b", "--sent").out, HasSubstr("1 message is due now"));
  EXPECT_TRUE(eventually([&] { return effects_of(world, "b") == "b1" && stored(world) == "0"; }, 60s))
      << world.output();
  EXPECT_EQ(world.effects().rows, 3);
}

TEST_F(Retries, a_row_that_no_relay_can_read_is_refused) {
  World world(1);
  const auto insert = [&](const std::string& headers) {
    return world.query(
        "INSERT INTO retry (handler, message_id, slot, incarnation, record_offset, attempts, due_at, in_order, shard, "
        "topic, partition, header_names, header_values, error) VALUES (1, gen_random_uuid(), 1, 0, 0, 1, now(), true, 0, "
        "'t', 0, " +
        headers + ", 'down') RETURNING 1");
  };
  EXPECT_ANY_THROW(static_cast<void>(insert("'{{a,b}}', '{{a,b}}'")));
  EXPECT_ANY_THROW(static_cast<void>(insert("'{a,b}', '{a}'")));
  EXPECT_ANY_THROW(static_cast<void>(insert("'{NULL}', '{a}'")));
  EXPECT_EQ(insert("'{a}', '{NULL}'"), "1");
}

// The calls of retry_statements.hpp, on a table that PostgreSQL has not analyzed.
TEST_F(Retries, each_call_reads_only_the_rows_that_it_needs) {
  World world(1);
  Process consumer = world.consumer(toml(world, "1h..1h"));
  world.publish("a1", "throw", "a");
  EXPECT_TRUE(eventually([&] { return stored(world) == "1"; }, 60s)) << world.output();
  consumer.signal(SIGTERM);
  EXPECT_EQ(consumer.wait(20s), 0) << world.output();
  const auto fill = [&](const char* due_at) {
    EXPECT_EQ(
        world.query(
            "WITH many AS (INSERT INTO retry (handler, message_id, slot, incarnation, record_offset, attempts, due_at, in_order, "
            "shard, topic, partition, header_names, header_values, error) SELECT handler, gen_random_uuid(), slot, 0, n, 1, " +
            std::string(due_at) +
            ", true, n % 16, topic, partition, '{}', '{}', 'down' FROM retry r, generate_series(1, 20000) n "
            "WHERE r.record_offset = 0 RETURNING id, due_at, shard), due AS (INSERT INTO retry_due (due_at, id, shard) "
            "SELECT due_at, id, shard FROM many WHERE due_at < 'infinity') SELECT count(*) FROM many"),
        "20000");
  };
  const auto pages_of = [&](const std::string& call) {
    // The first call of a session also reads the catalog, and so does one after other tests have changed many tables.
    const bool is_repeatable = !call.starts_with("end_");
    const std::string warm = is_repeatable ? "SELECT * FROM " + call + ";" : "";
    int least = INT_MAX;
    for (int times = is_repeatable ? 3 : 1; times > 0; --times) {
      const std::string plan = world.query(warm + "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT * FROM " + call);
      const Json root = Json::parse(plan)[0]["Plan"];
      least = std::min(least, root["Shared Hit Blocks"].get<int>() + root["Shared Read Blocks"].get<int>());
    }
    return least;
  };
  fill("CASE WHEN n % 2 = 0 THEN 'infinity' ELSE now() + interval '1 day' + n * interval '1 ms' END");
  const std::string shards = "('{0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15}', ";
  EXPECT_LE(pages_of("look_for_due_retries" + shards + "500)"), 60);
  EXPECT_LE(pages_of("retries_to_send" + shards + "500, 1000000)"), 60);
  EXPECT_EQ(world.query("SELECT count(*) FROM retries_to_send" + shards + "500, 1000000)"), "0");
  fill("now()");
  EXPECT_LE(pages_of("look_for_due_retries" + shards + "50)"), 60);
  EXPECT_LE(pages_of("retries_to_send" + shards + "50, 1000000)"), 800);
  EXPECT_EQ(world.query("SELECT count(*) FROM retries_to_send" + shards + "50, 1000000)"), "50");
  // What comes back is found by its number.
  const std::string some = world.query(
      "SELECT format('(%s::smallint, %L, %L', min(handler), array_agg(id), array_agg(attempts)) || "
      "format(', %L)', array_agg(message_id)) FROM (SELECT * FROM retry ORDER BY id DESC LIMIT 50) r");
  EXPECT_LE(pages_of("lock_retries" + some), 1'500) << some;
  EXPECT_LE(pages_of("end_retries" + some.substr(0, some.rfind(", '")) + ")"), 1'500) << some;
}

TEST_F(Retries, a_handler_may_ask_for_any_delay) {
  World world(1);
  for (const auto* text : {"max", "long", "min"}) world.publish(text, text, text);
  std::atomic<int> done{0};
  Running consumer(world.config("mode = \"transactional\"\nretry = { durable = \"wait\", attempts = 30 }"),
                   [&](Consumer& app) {
                     app.topic(world.topic(), [&](const Message& message, Context& context) -> Outcome {
                       if (message.text() == "max") return Outcome::retry_after(std::chrono::milliseconds::max());
                       if (message.text() == "long") return Outcome::retry_after(9'000'000'000'000ms);
                       if (context.attempt() == 1) return Outcome::retry_after(std::chrono::milliseconds::min());
                       ++done;
                       return Outcome::done();
                     });
                   });
  EXPECT_TRUE(eventually([&] { return done == 1 && world.caught_up() && stored(world) == "2"; }, 60s))
      << consumer.log_text();
  EXPECT_EQ(world.query("SELECT count(*) FROM retry WHERE due_at BETWEEN now() + interval '3649 days' AND "
                        "now() + interval '3650 days'"),
            "2");
  EXPECT_EQ(consumer.stop(), "");
}

TEST_F(Retries, the_commands_of_the_page_run_as_written) {
  World world(1);
  const std::string config = toml(world, "1h..1h");
  Process consumer = world.consumer(config);
  for (int i = 0; i < 4; ++i) world.publish("a" + std::to_string(i), "throw", "customer-" + std::to_string(16 + i));
  EXPECT_TRUE(eventually([&] { return stored(world) == "4"; }, 60s)) << world.output();
  consumer.signal(SIGTERM);
  EXPECT_EQ(consumer.wait(20s), 0) << world.output();
  Cli cli;
  configure(cli, config);
  const std::string first = world.query("SELECT min(id) FROM retry");
  ASSERT_EQ(first, "1") << "the page names it";
  EXPECT_EQ(run_page(cli, "operations/retries.md", world.topic()), 2);
}

}  // namespace
}  // namespace turnstile::test
