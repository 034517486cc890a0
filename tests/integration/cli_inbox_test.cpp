// turnstile inbox, on a real PostgreSQL.

#include <gmock/gmock.h>

#include <csignal>
#include <memory>
#include <nlohmann/json.hpp>

#include "tests/integration/cli_database.hpp"

namespace turnstile::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const MessageId kOrder = MessageId::from("order-17");

class CliInbox : public CliDatabase {
 protected:
  void SetUp() override {
    CliDatabase::SetUp();
    if (IsSkipped()) return;
    migrate();
    register_handlers();
  }
};

TEST_F(CliInbox, inspect_finds_an_id_as_a_person_has_it) {
  see(1, kOrder, "'2026-03-01 14:05:09+00'");
  const auto found = cli_.run("inbox", "inspect", "order-17");
  EXPECT_EQ(found.code, 0) << found.err;
  EXPECT_THAT(found.out, AllOf(HasSubstr("order-17, kept as " + kOrder.text()), HasSubstr("charge"),
                               HasSubstr("2026-03-01 14:05:09 UTC"), HasSubstr("payments[3]@1041 (group billing)")));
  // The 16 bytes, written as a UUID in upper or lower case, mean the same row.
  EXPECT_EQ(cli_.run("inbox", "inspect", kOrder.text()).code, 0);
}

TEST_F(CliInbox, inspect_says_not_seen) {
  see(1, kOrder);
  const auto other = cli_.run("inbox", "inspect", "order-18");
  EXPECT_EQ(other.code, 1);
  EXPECT_THAT(other.out, HasSubstr("not seen"));
  const auto mail = cli_.run("inbox", "inspect", "order-17", "--handler", "mail");
  EXPECT_EQ(mail.code, 1);
  EXPECT_THAT(mail.out, HasSubstr("not seen by mail"));
}

TEST_F(CliInbox, inspect_as_json_lists_handlers_and_dead_letters) {
  see(1, kOrder);
  sql("INSERT INTO dead (handler, slot, incarnation, record_offset, message_id, reason, error, attempts, header_names, header_values) "
      "VALUES (2, 1, 0, 1041, '" +
      kOrder.text() + "', 'failed', 'mailbox full', 5, '{}', '{}')");
  const auto json = nlohmann::json::parse(cli_.run("inbox", "inspect", "order-17", "--json").out);
  EXPECT_EQ(json["id"], kOrder.text());
  ASSERT_EQ(json["seen"].size(), 1U);
  EXPECT_EQ(json["seen"][0]["handler"], "charge");
  EXPECT_EQ(json["seen"][0]["offset"], 1041);
  ASSERT_EQ(json["dead"].size(), 1U);
  EXPECT_EQ(json["dead"][0]["handler"], "mail");
  EXPECT_EQ(json["dead"][0]["replayed_at"], nullptr);
}

TEST_F(CliInbox, inspect_says_that_an_id_came_by_a_call) {
  // The call came over HTTP or through Inbox::once().
  sql("INSERT INTO inbox (handler, id, slot, record_offset) VALUES (1, '" + kOrder.text() + "', 0, 0)");
  sql("INSERT INTO inbox (handler, id, slot, record_offset) VALUES (2, '" + kOrder.text() + "', 99, 5)");
  const auto found = cli_.run("inbox", "inspect", "order-17");
  EXPECT_THAT(found.out, AllOf(::testing::ContainsRegex("charge .* a call .HTTP or Inbox."),
                               ::testing::ContainsRegex("mail .* a partition that is no longer known, @5")));
  const auto json = nlohmann::json::parse(cli_.run("inbox", "inspect", "order-17", "--json").out);
  EXPECT_EQ(json["seen"][0]["topic"], nullptr);
  EXPECT_EQ(json["seen"][0]["offset"], nullptr);
  EXPECT_EQ(json["seen"][1]["offset"], 5);
}

TEST_F(CliInbox, an_unknown_handler_is_not_taken_for_an_empty_one) {
  const auto found = cli_.run("inbox", "inspect", "order-17", "--handler", "chrage");
  EXPECT_EQ(found.code, 2);
  EXPECT_THAT(found.err, AllOf(HasSubstr("no handler \"chrage\" has ever registered"), HasSubstr("charge, mail")));
}

TEST_F(CliInbox, stats_count_per_handler_and_show_partitions) {
  sql("INSERT INTO inbox (handler, id, slot, record_offset, seen_at) SELECT 1, gen_random_uuid(), 1, n, "
      "CASE n WHEN 1 THEN '2026-01-02 03:04:05+00' ELSE now() END FROM generate_series(1, 1200) n");
  const auto stats = cli_.run("inbox", "stats");
  EXPECT_EQ(stats.code, 0) << stats.err;
  EXPECT_THAT(stats.out, ::testing::ContainsRegex("charge +1,200 +2026-01-02 03:04:05 UTC"));
  EXPECT_THAT(stats.out, ::testing::ContainsRegex("mail +0 +- +- +0"));
  EXPECT_THAT(stats.out, ::testing::ContainsRegex("billing +payments.3. +1042 .* +7 "));
  const auto json = nlohmann::json::parse(cli_.run("inbox", "stats", "--json").out);
  EXPECT_EQ(json["handlers"][0]["rows"], 1200);
  EXPECT_EQ(json["partitions"][0]["watermark"], 1042);
  EXPECT_GT(json["table_bytes"].get<std::int64_t>(), 0);
}

TEST_F(CliInbox, forget_asks_first_because_the_effect_may_run_again) {
  see(1, kOrder);
  const auto asked = cli_.run("inbox", "forget", "order-17", "--handler", "charge");
  EXPECT_EQ(asked.code, 2);
  EXPECT_THAT(asked.err, AllOf(HasSubstr("takes effect a second time"), HasSubstr("--yes")));
  EXPECT_EQ(sql("SELECT count(*) FROM inbox"), "1");

  const auto forgotten = cli_.run("inbox", "forget", "order-17", "--handler", "charge", "--yes");
  EXPECT_EQ(forgotten.code, 0) << forgotten.err;
  EXPECT_THAT(forgotten.out, HasSubstr("takes effect again for charge"));
  const auto again = cli_.run("inbox", "forget", "order-17", "--handler", "charge", "--yes");
  EXPECT_EQ(again.code, 1);
  EXPECT_THAT(again.out, HasSubstr("nothing to forget"));
}

TEST_F(CliInbox, a_held_row_is_not_waited_for_for_ever) {
  see(1, kOrder);
  pqxx::connection holder(url_);
  pqxx::work work(holder);
  work.exec("SELECT 1 FROM " + schema_ + ".inbox FOR UPDATE");
  const auto forgotten = cli_.run("inbox", "forget", "order-17", "--handler", "charge", "--yes");
  EXPECT_EQ(forgotten.code, 3);
  EXPECT_THAT(forgotten.err, AllOf(HasSubstr("too busy"), HasSubstr("rolled back"), HasSubstr("try again later")));
}

TEST_F(CliInbox, what_a_consumer_may_not_do_names_the_owner_and_no_grants) {
  see(1, kOrder, "now() - interval '90 days'");
  sql("INSERT INTO claim (handler, id, state, owner, fence, slot, record_offset, expires_at) VALUES "
      "(1, '" +
      MessageId::from("order-18").text() + "', 'parked', gen_random_uuid(), 1, 1, 5, now())");
  const std::vector<std::vector<std::string>> verbs{
      {"inbox", "forget", "order-17", "--handler", "charge", "--yes"},
      {"inbox", "unpark", "order-18", "--handler", "charge", "--done"},
      {"inbox", "purge", "--older-than", "30d", "--force"},
  };
  for (auto verb : verbs) {
    verb.insert(verb.end(), {"--postgres", consumer_url()});
    const auto refused = cli_.run_all(verb);
    EXPECT_EQ(refused.code, 3) << verb[1] << refused.out;
    EXPECT_THAT(refused.err, AllOf(HasSubstr("only the owner of the schema " + schema_), Not(HasSubstr("GRANT"))))
        << verb[1];
  }
  EXPECT_EQ(sql("SELECT count(*) FROM inbox"), "1");
  EXPECT_EQ(sql("SELECT state FROM claim"), "parked");
}

TEST_F(CliInbox, forget_leaves_other_handlers_alone) {
  see(1, kOrder);
  see(2, kOrder);
  EXPECT_EQ(cli_.run("inbox", "forget", "order-17", "--handler", "charge", "--yes").code, 0);
  EXPECT_EQ(sql("SELECT string_agg(handler::text, ',') FROM inbox"), "2");
}

TEST_F(CliInbox, without_the_schema_says_which_command_makes_it) {
  sql("DROP SCHEMA " + schema_ + " CASCADE");
  for (const char* verb : {"inspect", "stats"}) {
    const auto stats = cli_.run_all(verb == std::string("stats") ? std::vector<std::string>{"inbox", "stats"}
                                                                 : std::vector<std::string>{"inbox", "inspect", "x"});
    EXPECT_EQ(stats.code, 4);
    EXPECT_THAT(stats.err, HasSubstr("turnstile migrate up"));
  }
}

// --- purge ---

class CliPurge : public CliInbox {
 protected:
  /// Adds ids for handler charge: `old` ids that are 10 days old, and `young` ids that are an hour old.
  void fill(int old, int young) {
    sql("INSERT INTO inbox (handler, id, slot, record_offset, seen_at) SELECT 1, gen_random_uuid(), 1, n, now() - interval '10 days' "
        "FROM generate_series(1, " +
        std::to_string(old) + ") n");
    sql("INSERT INTO inbox (handler, id, slot, record_offset, seen_at) SELECT 1, gen_random_uuid(), 1, n, now() - interval '1 hour' "
        "FROM generate_series(1, " +
        std::to_string(young) + ") n");
  }
};

TEST_F(CliPurge, deletes_the_old_and_leaves_the_young) {
  fill(25'000, 3'000);
  const auto purged = cli_.run("inbox", "purge", "--older-than", "8d", "--batch", "1000");
  EXPECT_EQ(purged.code, 0) << purged.err;
  EXPECT_THAT(purged.out, HasSubstr("25,000 ids deleted"));
  EXPECT_EQ(sql("SELECT count(*) FROM inbox"), "3000");
  EXPECT_THAT(cli_.run("inbox", "purge", "--older-than", "8d").out, HasSubstr("0 ids deleted"));
}

TEST_F(CliPurge, leaves_the_ids_that_dead_letters_need) {
  fill(100, 0);
  sql("INSERT INTO dead (handler, slot, incarnation, record_offset, message_id, reason, error, attempts, header_names, "
      "header_values, replayed_at) SELECT handler, slot, 1, record_offset, id, 'failed', 'e', 1, '{}', '{}', CASE record_offset "
      "WHEN 1 THEN NULL WHEN 2 THEN now() - interval '7 days' ELSE now() - interval '9 days' END FROM inbox WHERE record_offset < 4");
  EXPECT_THAT(cli_.run("inbox", "purge", "--older-than", "8d").out, HasSubstr("98 ids deleted"));
  EXPECT_EQ(sql("SELECT string_agg(record_offset::text, ' ' ORDER BY record_offset) FROM inbox"), "1 2");
}

TEST_F(CliPurge, finds_old_rows_between_young_ones) {
  // Space that a vacuum made free is used again, so that old and young rows share blocks.
  sql("INSERT INTO inbox (handler, id, slot, record_offset, seen_at) SELECT 1, gen_random_uuid(), 1, n, "
      "now() - (CASE WHEN n % 3 = 0 THEN '10 days' ELSE '1 hour' END)::interval FROM generate_series(1, 30000) n");
  EXPECT_THAT(cli_.run("inbox", "purge", "--older-than", "8d", "--batch", "700").out, HasSubstr("10,000 ids deleted"));
  EXPECT_EQ(sql("SELECT count(*) FROM inbox WHERE seen_at < now() - interval '8 days'"), "0");
  EXPECT_EQ(sql("SELECT count(*) FROM inbox"), "20000");
}

TEST_F(CliPurge, of_one_handler_only) {
  fill(10, 0);
  see(2, kOrder, "now() - interval '10 days'");
  EXPECT_THAT(cli_.run("inbox", "purge", "--older-than", "8d", "--handler", "mail").out, HasSubstr("1 id deleted"));
  EXPECT_EQ(sql("SELECT count(*) FROM inbox"), "10");
}

// Each transaction is small: no row stays locked while the rest is deleted (hazard: purge-locks).
TEST_F(CliPurge, one_transaction_holds_one_batch) {
  fill(2'500, 0);
  sql("CREATE TABLE seen_batches (xid xid8, n bigint)");
  sql("CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO " + schema_ +
      ".seen_batches SELECT pg_current_xact_id(), count(*) FROM gone; RETURN NULL; END $$");
  sql("CREATE TRIGGER note AFTER DELETE ON inbox REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION note()");
  EXPECT_EQ(cli_.run("inbox", "purge", "--older-than", "8d", "--batch", "1000").code, 0);
  EXPECT_EQ(sql("SELECT max(n) FROM seen_batches"), "1000");
  EXPECT_EQ(sql("SELECT count(DISTINCT xid) FROM seen_batches WHERE n > 0"), "3");
}

TEST_F(CliPurge, a_signal_ends_it_between_two_batches) {
  fill(5'000, 0);
  // Each batch waits for a lock (the gate), which the test opens twice.
  sql("CREATE TABLE gate (n integer); CREATE SEQUENCE batches");
  sql("CREATE FUNCTION pass() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM nextval('" + schema_ +
      ".batches'); LOCK TABLE " + schema_ + ".gate IN SHARE MODE; RETURN NULL; END $$");
  sql("CREATE TRIGGER pass BEFORE DELETE ON inbox FOR EACH STATEMENT EXECUTE FUNCTION pass()");
  pqxx::connection keeper(url_);
  auto closed = std::make_unique<pqxx::work>(keeper);
  closed->exec("LOCK TABLE " + schema_ + ".gate IN EXCLUSIVE MODE");

  CliProcess purge({"inbox", "purge", "--older-than", "8d", "--batch", "1000"}, cli_.environment(),
                   cli_.folder().path());
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (sql("SELECT is_called FROM batches") != "t" && std::chrono::steady_clock::now() < end) continue;
  purge.signal(SIGTERM);
  closed->commit();
  const auto ended = purge.wait(std::chrono::seconds(20));
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.out, HasSubstr("1,000 ids deleted, then interrupted; run it again for the rest"));
  EXPECT_EQ(sql("SELECT count(*) FROM inbox"), "4000");
}

TEST_F(CliPurge, one_cleaner_at_a_time) {
  fill(10, 0);
  pqxx::connection rival(url_);
  pqxx::work work(rival);
  work.exec("SELECT pg_advisory_xact_lock(hashtextextended('turnstile.purge." + schema_ + "', 0))");
  const auto purged = cli_.run("inbox", "purge", "--older-than", "8d");
  EXPECT_EQ(purged.code, 1);
  EXPECT_THAT(purged.out, HasSubstr("0 ids deleted; another purge runs now"));
  EXPECT_EQ(sql("SELECT count(*) FROM inbox"), "10");
}

TEST_F(CliPurge, refuses_what_a_topic_still_needs) {
  fill(10, 0);
  cli_.folder().write("turnstile.toml",
                      "[kafka]\n\"bootstrap.servers\" = \"localhost:9092\"\n"
                      "[topics.payments]\nhandler = \"charge\"\nmode = \"transactional\"\nkeep_ids_for = \"14d\"\n");
  const auto refused = cli_.run("inbox", "purge", "--older-than", "8d");
  EXPECT_EQ(refused.code, 4);
  EXPECT_THAT(refused.err,
              AllOf(HasSubstr("turnstile.toml:6"), HasSubstr("keep_ids_for"), HasSubstr("14d, which is more than 8d"),
                    HasSubstr("take effect a second time"), HasSubstr("--force")));
  EXPECT_EQ(sql("SELECT count(*) FROM inbox"), "10");

  EXPECT_THAT(cli_.run("inbox", "purge", "--older-than", "8d", "--handler", "mail").out, HasSubstr("0 ids deleted"));
  EXPECT_THAT(cli_.run("inbox", "purge", "--older-than", "8d", "--force").out, HasSubstr("10 ids deleted"));
}

TEST_F(CliPurge, refuses_less_than_the_default_when_nothing_is_configured) {
  const auto refused = cli_.run("inbox", "purge", "--older-than", "2h");
  EXPECT_EQ(refused.code, 4);
  EXPECT_THAT(refused.err, HasSubstr("2h is less than the 8d for which ids are kept"));
}

// The command as cron runs it, for programs without topics: an HTTP endpoint, or Inbox::once().
TEST_F(CliPurge, purges_by_what_programs_without_topics_have_declared) {
  sql("SELECT keep_ids(1::smallint, 86400)");
  fill(10, 10);
  EXPECT_THAT(cli_.run("inbox", "purge", "--older-than", "12h").err, HasSubstr("for 1d, which is more than 12h"));
  const auto purged = cli_.run("inbox", "purge", "--older-than", "24h");
  EXPECT_EQ(purged.code, 0) << purged.err;
  EXPECT_THAT(purged.out, HasSubstr("10 ids deleted"));
}

TEST_F(CliPurge, refuses_less_than_the_default_where_one_handler_has_declared_nothing) {
  sql("SELECT keep_ids(1::smallint, 86400)");
  sql("INSERT INTO handler (id, name) VALUES (7, 'undeclared')");
  sql("INSERT INTO inbox (handler, id, slot, record_offset) VALUES (7, gen_random_uuid(), 0, 0)");
  const auto refused = cli_.run("inbox", "purge", "--older-than", "24h");
  EXPECT_EQ(refused.code, 4);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("none has for handler undeclared"), HasSubstr("Inbox::keep_ids()")));
}

// The command refuses this with any configuration on this machine.
TEST_F(CliPurge, refuses_what_consumers_have_said_that_they_need) {
  fill(10, 0);
  sql("SELECT keep_ids(1::smallint, 86400 * 14)");
  const auto refused = cli_.run("inbox", "purge", "--older-than", "9d");
  EXPECT_EQ(refused.code, 4);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("consumers of handler charge have declared that they need its ids for 14d"),
                                 HasSubstr("more than 9d"), HasSubstr("--force")));
  sql("SELECT keep_ids(1::smallint, NULL)");
  EXPECT_THAT(cli_.run("inbox", "purge", "--older-than", "300d").err, HasSubstr("forever"));
  EXPECT_THAT(cli_.run("inbox", "purge", "--older-than", "9d", "--handler", "mail").out, HasSubstr("0 ids deleted"));
  EXPECT_THAT(cli_.run("inbox", "purge", "--older-than", "9d", "--force").out, HasSubstr("10 ids deleted"));
}

// A consumer without keep_ids_for derives the time from the topic's retention, and declares it.
TEST_F(CliPurge, follows_the_database_for_a_topic_without_keep_ids_for) {
  fill(10, 10);
  cli_.folder().write("turnstile.toml",
                      "[kafka]\n\"bootstrap.servers\" = \"localhost:9092\"\n"
                      "[topics.payments]\nhandler = \"charge\"\nmode = \"transactional\"\n");
  EXPECT_THAT(cli_.run("inbox", "purge", "--older-than", "1h").err,
              HasSubstr("1h is less than the 8d for which ids are kept if no program has declared otherwise"));
  sql("SELECT keep_ids(1::smallint, 86400 * 15)");
  const auto refused = cli_.run("inbox", "purge", "--older-than", "1h");
  EXPECT_EQ(refused.code, 4);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("handler charge"), HasSubstr("for 15d, which is more than 1h")));
  sql("DELETE FROM retention");
  sql("INSERT INTO retention (handler, keep_s) VALUES (1, 86400)");
  const auto purged = cli_.run("inbox", "purge", "--older-than", "24h");
  EXPECT_EQ(purged.code, 0) << purged.err;
  EXPECT_THAT(purged.out, HasSubstr("10 ids deleted"));
}

// The command accepts the time from the message, so that it does not refuse a second time.
TEST_F(CliPurge, names_the_longest_time_of_several) {
  fill(10, 0);
  cli_.folder().write("turnstile.toml",
                      "[kafka]\n\"bootstrap.servers\" = \"localhost:9092\"\n"
                      "[topics.a]\nmode = \"transactional\"\nkeep_ids_for = \"9d\"\n"
                      "[topics.payments]\nhandler = \"charge\"\nmode = \"transactional\"\nkeep_ids_for = \"14d\"\n");
  EXPECT_THAT(cli_.run("inbox", "purge", "--older-than", "1h").err, HasSubstr("14d, which is more than 1h"));
  sql("SELECT keep_ids(1::smallint, 86400 * 15)");
  EXPECT_THAT(cli_.run("inbox", "purge", "--older-than", "1h").err, HasSubstr("for 15d, which is more than 1h"));
  EXPECT_EQ(cli_.run("inbox", "purge", "--older-than", "15d").code, 0);
}

TEST_F(CliPurge, leaves_written_what_was_forgotten_and_when) {
  fill(10, 10);
  EXPECT_EQ(cli_.run("inbox", "purge", "--older-than", "8d").code, 0);
  EXPECT_EQ(sql("SELECT forgotten_before BETWEEN now() - interval '8 days 5 minutes' AND now() - interval '8 days' "
                "FROM horizon WHERE handler = 1"),
            "t");
  EXPECT_EQ(sql("SELECT count(*) FROM sweep WHERE swept_at > now() - interval '5 minutes'"), "2");
}

TEST_F(CliPurge, an_age_that_is_none_is_explained) {
  for (const char* age : {"week", "7", "-7d", "0d", "99999999999999d"}) {
    const auto purged = cli_.run("inbox", "purge", std::string("--older-than=") + age);
    EXPECT_EQ(purged.code, 2) << age;
    EXPECT_THAT(purged.err, HasSubstr("as in 7d, 36h")) << age;
  }
}

// --- leased topics ---

class CliParked : public CliInbox {
 protected:
  void SetUp() override {
    CliInbox::SetUp();
    if (IsSkipped()) return;
    sql("INSERT INTO claim (handler, id, state, owner, fence, expires_at, slot, record_offset) VALUES (1, '" +
        kOrder.text() + "', 'parked', gen_random_uuid(), 3, now(), 1, 1041)");
    sql("INSERT INTO dead (handler, slot, incarnation, record_offset, message_id, reason, error, attempts, header_names, "
        "header_values) VALUES (1, 1, 0, 1041, '" +
        kOrder.text() + "', 'unknown', 'its lease ended', 1, '{}', '{}')");
  }
};

TEST_F(CliParked, inspect_and_stats_say_what_is_parked_and_what_to_do) {
  const auto found = cli_.run("inbox", "inspect", "order-17");
  EXPECT_EQ(found.code, 1);
  EXPECT_THAT(found.out, AllOf(HasSubstr("parked by charge"), HasSubstr("(claim 3), from payments[3]@1041"),
                               HasSubstr("turnstile inbox unpark " + kOrder.text() + " --handler charge --done"),
                               Not(HasSubstr("not seen"))));
  const auto json = nlohmann::json::parse(cli_.run("inbox", "inspect", "order-17", "--json").out);
  EXPECT_EQ(json["claims"][0]["state"], "parked");
  EXPECT_EQ(json["claims"][0]["fence"], 3);
  EXPECT_THAT(cli_.run("inbox", "stats").out, HasSubstr("PARKED"));
  EXPECT_EQ(nlohmann::json::parse(cli_.run("inbox", "stats", "--json").out)["handlers"][0]["parked"], 1);
  sql("UPDATE claim SET state = 'claimed', expires_at = now() - interval '1 second'");
  EXPECT_THAT(cli_.run("inbox", "inspect", "order-17").out, HasSubstr("unknown by charge"));
}

TEST_F(CliParked, unpark_done_makes_it_an_id_of_the_inbox) {
  const auto done = cli_.run("inbox", "unpark", "order-17", "--handler", "charge", "--done");
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_THAT(done.out, HasSubstr("further copies are duplicates for charge"));
  EXPECT_EQ(sql("SELECT count(*) FROM inbox WHERE id = '" + kOrder.text() + "'"), "1");
  EXPECT_EQ(sql("SELECT count(*) FROM claim"), "0");
  EXPECT_EQ(sql("SELECT count(*) FROM dead WHERE replayed_at IS NULL"), "0");
  EXPECT_EQ(cli_.run("inbox", "unpark", "order-17", "--handler", "charge", "--done").code, 1)
      << "nothing to decide any more";
}

TEST_F(CliParked, unpark_rerun_lets_it_run_and_says_how_to_deliver_it) {
  const auto rerun = cli_.run("inbox", "unpark", "order-17", "--handler", "charge", "--rerun");
  EXPECT_EQ(rerun.code, 0) << rerun.err;
  EXPECT_THAT(rerun.out, HasSubstr("turnstile dlq replay 1"));
  EXPECT_EQ(sql("SELECT state FROM claim WHERE fence = 3"), "failed") << "its fence goes on growing";
  EXPECT_EQ(sql("SELECT count(*) FROM inbox"), "0");
}

TEST_F(CliParked, unpark_wants_to_know_which_and_touches_nothing_else) {
  for (const auto& arguments : {std::vector<std::string>{}, {"--done", "--rerun"}}) {
    std::vector<std::string> all{"inbox", "unpark", "order-17", "--handler", "charge"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    const auto refused = cli_.run_all(all);
    EXPECT_EQ(refused.code, 2);
    EXPECT_THAT(refused.err, HasSubstr("choose one: --done"));
  }
  sql("UPDATE claim SET state = 'claimed', expires_at = now() + interval '1 minute'");
  EXPECT_EQ(cli_.run("inbox", "unpark", "order-17", "--handler", "charge", "--done").code, 1) << "somebody is at it";
  EXPECT_EQ(sql("SELECT count(*) FROM inbox"), "0");
}

TEST_F(CliParked, forget_takes_the_response_with_it) {
  see(2, kOrder);
  sql("INSERT INTO response (handler, id, body) VALUES (2, '" + kOrder.text() + "', 'old')");
  EXPECT_EQ(cli_.run("inbox", "forget", "order-17", "--handler", "mail", "--yes").code, 0);
  EXPECT_EQ(sql("SELECT count(*) FROM response"), "0");
}

}  // namespace
}  // namespace turnstile::test
