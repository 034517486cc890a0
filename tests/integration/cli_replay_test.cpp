// turnstile dlq replay, on a real PostgreSQL and a real Kafka.

#include <gmock/gmock.h>

#include <csignal>
#include <map>
#include <thread>

#include "tests/integration/cli_dlq.hpp"
#include "tests/support/eventually.hpp"

namespace turnstile::test {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(CliReplay, publishes_the_record_to_its_topic_and_marks_it) {
  bury(7, "'{\"amount\": 12}'");
  const auto replay = cli_.run("dlq", "replay", "1");
  EXPECT_EQ(replay.code, 0) << replay.err;
  EXPECT_THAT(replay.out, HasSubstr("1 -> " + topic_ + "[3]@0"));

  const auto records = kafka_.read(topic_, 1);
  ASSERT_EQ(records.size(), 1U);
  EXPECT_EQ(records[0].partition, 3);
  EXPECT_EQ(records[0].key, "k-1");
  EXPECT_EQ(records[0].payload, "{\"amount\": 12}");
  const std::vector<Header> headers{{"message-id", "order-17"},
                                    {"trace", std::string("\x00\xff", 2)},
                                    {"empty", std::nullopt},
                                    {"turnstile-replayed-from", topic_ + "[3]@7"},
                                    {"turnstile-replayed-for", "charge"}};
  ASSERT_GE(records[0].headers.size(), headers.size());
  EXPECT_TRUE(std::equal(headers.begin(), headers.end(), records[0].headers.begin()));
  EXPECT_EQ(sql("SELECT replayed_at IS NOT NULL FROM dead"), "t");
}

TEST_F(CliReplay, a_second_time_is_refused_unless_asked_for) {
  bury(7, "'{}'");
  ASSERT_EQ(cli_.run("dlq", "replay", "1").code, 0);
  const auto again = cli_.run("dlq", "replay", "1");
  EXPECT_EQ(again.code, 4);
  EXPECT_THAT(again.err, AllOf(HasSubstr("was replayed already"), HasSubstr("--again")));
  EXPECT_EQ(cli_.run("dlq", "replay", "1", "--again").code, 0);
  EXPECT_EQ(kafka_.read(topic_, 2).size(), 2U);
}

/// The command once published the record, failed, and published it again at each try.
TEST_F(CliReplay, a_role_that_cannot_mark_the_row_publishes_nothing) {
  bury(7, "'{}'");
  bury(8, "'by its place'");
  sql("UPDATE dead SET message_id = '" + id_of_place({{topic_, 3}, 8}, 0).text() + "' WHERE record_offset = 8");
  for (const std::vector<std::string>& which : {std::vector<std::string>{"1"}, {"1", "--again"}, {"2"}, {"--all"}}) {
    std::vector<std::string> verb{"dlq", "replay", "--postgres", consumer_url()};
    verb.insert(verb.end(), which.begin(), which.end());
    const auto refused = cli_.run_all(verb);
    EXPECT_EQ(refused.code, 3) << refused.out;
    EXPECT_THAT(refused.err, AllOf(HasSubstr("permission denied for table dead"),
                                   HasSubstr("only the owner of the schema " + schema_), Not(HasSubstr("GRANT"))));
  }
  EXPECT_EQ(sql("SELECT count(*) FROM dead WHERE replayed_at IS NULL"), "2");
  ASSERT_EQ(cli_.run("dlq", "replay", "2").code, 0);
  EXPECT_EQ(kafka_.read(topic_, 1).at(0).payload, "by its place") << "the first record that was published";
}

TEST_F(CliReplay, operators_at_one_time_publish_one_record) {
  bury(7, "'{}'");
  bury(8, "'the last'");
  EXPECT_EQ(published_by_four("1"), 1);
  ASSERT_EQ(cli_.run("dlq", "replay", "2").code, 0);
  EXPECT_EQ(kafka_.read(topic_, 2).at(1).payload, "the last");
}

TEST_F(CliReplay, all_of_those_that_wait) {
  bury(0, "'{}'");
  // More rows than replay reads at a time.
  sql("INSERT INTO dead (handler, slot, incarnation, record_offset, reason, error, attempts, header_names, header_values) "
      "SELECT 1, 1, 0, n, 'failed', 'card declined', 5, '{}', '{}' FROM generate_series(1, 249) n");
  sql("UPDATE dead SET replayed_at = now() WHERE record_offset = 0");
  const auto replay = cli_.run("dlq", "replay", "--all");
  EXPECT_EQ(replay.code, 0) << replay.err;
  EXPECT_THAT(replay.out, HasSubstr("249 dead letters replayed"));
  EXPECT_EQ(kafka_.read(topic_, 249).size(), 249U);
  EXPECT_THAT(cli_.run("dlq", "replay", "--all").out, HasSubstr("nothing to replay"));
  EXPECT_THAT(cli_.run("dlq", "list").out, HasSubstr("no dead letters that wait"));
}

TEST_F(CliReplay, all_from_a_number_leaves_older_letters_waiting) {
  for (int offset = 0; offset < 3; ++offset) bury(offset, "'{}'");
  const auto replay = cli_.run("dlq", "replay", "--all", "--from", "2");
  EXPECT_EQ(replay.code, 0) << replay.err;
  EXPECT_THAT(replay.out, HasSubstr("2 dead letters replayed"));
  EXPECT_EQ(sql("SELECT string_agg(id::text, ' ') FROM dead WHERE replayed_at IS NULL"), "1");
  EXPECT_EQ(cli_.run("dlq", "replay", "1", "--from", "1").code, 2);
}

/// A running consumer makes new dead letters of the replayed messages while the replay is still under way.
TEST_F(CliReplay, all_leaves_the_letters_that_its_own_replay_makes) {
  for (int offset = 0; offset < 3; ++offset) bury(offset, "'{}'");
  sql("CREATE FUNCTION die_again() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
      "INSERT INTO " +
      schema_ +
      ".dead (handler, slot, incarnation, record_offset, reason, error, attempts, header_names, header_values) "
      "VALUES (new.handler, new.slot, 0, new.record_offset + 1000, 'failed', 'card declined', 5, '{}', '{}'); RETURN NULL; END $$");
  sql("CREATE TRIGGER die_again AFTER UPDATE ON dead FOR EACH ROW EXECUTE FUNCTION die_again()");
  const auto all = cli_.run("dlq", "replay", "--all");
  EXPECT_EQ(all.code, 0) << all.err;
  EXPECT_THAT(all.out, HasSubstr("3 dead letters replayed"));
  EXPECT_EQ(sql("SELECT string_agg(record_offset::text, ' ' ORDER BY id) FROM dead WHERE replayed_at IS NULL"),
            "1000 1001 1002");
}

TEST_F(CliReplay, warns_of_what_will_be_refused_again) {
  bury(7, "'{}'", "duplicate");
  const auto refused = cli_.run("dlq", "replay", "1");
  EXPECT_EQ(refused.code, 4);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("its message has taken effect"), HasSubstr("--again")));
  const auto all = cli_.run("dlq", "replay", "--all");
  EXPECT_EQ(all.code, 0) << all.err;
  EXPECT_THAT(all.out, HasSubstr("1 dead letter skipped"));
  EXPECT_THAT(
      cli_.run("dlq", "replay", "1", "--again").out,
      AllOf(HasSubstr("refused again"),
            HasSubstr("turnstile inbox forget " + MessageId::from("order-17").text() + " --handler charge --yes")));
}

TEST_F(CliReplay, all_passes_over_what_somebody_has_to_decide) {
  Offset offset = 0;
  for (const char* reason : {"failed", "too_old", "unknown", "outside_window", "no_session", "forged", "rejected"})
    bury(offset++, "'{}'", reason);
  const auto waiting = [&] {
    return sql("SELECT string_agg(reason, ' ' ORDER BY id) FROM dead WHERE replayed_at IS NULL");
  };
  const auto all = cli_.run("dlq", "replay", "--all");
  EXPECT_EQ(all.code, 0) << all.err;
  EXPECT_THAT(all.out, AllOf(HasSubstr("1 dead letter skipped: too_old, so an operator has to decide"),
                             HasSubstr("inbox unpark ID --done, or --rerun"), Not(HasSubstr("--all --reason forged"))));
  EXPECT_EQ(waiting(), "too_old unknown outside_window no_session forged");
  EXPECT_EQ(cli_.run("dlq", "replay", "--all", "--reason", "too_old").code, 0);
  EXPECT_EQ(waiting(), "unknown outside_window no_session forged");
  const auto forged = cli_.run("dlq", "replay", "--all", "--reason", "forged");
  EXPECT_EQ(forged.code, 2);
  EXPECT_THAT(forged.err, HasSubstr("by its number"));
  EXPECT_EQ(waiting(), "unknown outside_window no_session forged");
  EXPECT_EQ(cli_.run("dlq", "replay", "6").code, 0);
  EXPECT_EQ(waiting(), "unknown outside_window no_session");
}

TEST_F(CliReplay, a_letter_that_was_given_an_id_is_not_said_to_have_none) {
  bury(0, "'{}'", "missing_id");
  bury(1, "'{}'", "missing_id");
  EXPECT_THAT(cli_.run("dlq", "replay", "1").out, HasSubstr("it has no id"));
  ASSERT_EQ(cli_.run("dlq", "edit", "2", "--value", "now").code, 0);
  EXPECT_THAT(cli_.run("dlq", "replay", "2").out, Not(HasSubstr("it has no id")));
}

TEST_F(CliReplay, all_passes_over_what_would_die_of_the_same_again) {
  Offset offset = 0;
  for (const char* reason : {"missing_id", "failed", "missing_id", "mismatch"}) bury(offset++, "'{}'", reason);
  const auto waiting = [&] {
    return sql("SELECT string_agg(reason, ' ' ORDER BY id) FROM dead WHERE replayed_at IS NULL");
  };
  const auto all = cli_.run("dlq", "replay", "--all");
  EXPECT_EQ(all.code, 0) << all.err;
  EXPECT_THAT(all.out,
              AllOf(HasSubstr("2 dead letters skipped: missing_id, which would fail for the same reason again"),
                    HasSubstr("once that is fixed: --all --reason missing_id")));
  EXPECT_EQ(waiting(), "missing_id missing_id mismatch");
  EXPECT_EQ(cli_.run("dlq", "replay", "--all", "--reason", "missing_id").code, 0);
  EXPECT_EQ(waiting(), "mismatch");
}

/// If it were published twice, it would run twice, and nothing could detect that.
TEST_F(CliReplay, what_is_known_by_its_place_is_published_once) {
  bury(7, "'{}'");
  know_by_place(7);
  EXPECT_EQ(published_by_four("1"), 1);
  EXPECT_EQ(kafka_.read(topic_, 1).size(), 1U);
}

TEST_F(CliReplay, a_token_of_no_replay_is_refused_as_such) {
  bury(7, "'{}'");
  know_by_place(7);
  for (const char* option : {"--again=zzz", "--done=zzz"}) {
    const auto refused = cli_.run("dlq", "replay", "1", option);
    EXPECT_EQ(refused.code, 4) << option;
    EXPECT_THAT(refused.err, HasSubstr("dead letter 1: no replay zzz of it is in doubt; the letter waits")) << option;
  }
  EXPECT_EQ(sql("SELECT replayed_at IS NULL FROM dead"), "t");
}

/// Each of them has looked for the record of the replay in doubt, and has not found it.
TEST_F(CliReplay, operators_that_publish_again_at_one_time_publish_one_record) {
  bury(7, "'{}'");
  know_by_place(7);
  sql("UPDATE dead SET replayed_at = clock_timestamp() + interval '200000 years'");
  const auto token = token_of("1");
  EXPECT_EQ(published_by_four("1", {"--again=" + token}), 1);
  const auto late = cli_.run("dlq", "replay", "1", "--again=" + token);
  EXPECT_EQ(late.code, 4) << late.out;
  EXPECT_THAT(late.err, HasSubstr("no replay " + token + " of it is in doubt; the letter was replayed"));

  bury(8, "'the last'");
  ASSERT_EQ(cli_.run("dlq", "replay", "2").code, 0);
  EXPECT_EQ(kafka_.read(topic_, 2).at(1).payload, "the last");
}

TEST_F(CliReplay, while_a_replay_runs_nobody_else_decides_about_its_letter) {
  const auto mock = broker_without_answer(60s);
  bury(7, "'{}'");
  know_by_place(7);
  const CliProcess runs({"dlq", "replay", "1"}, cli_.environment(), cli_.folder().path());
  ASSERT_TRUE(eventually([&] { return sql("SELECT replayed_at IS NOT NULL FROM dead") == "t"; }));
  const auto token = token_of("1");
  for (const char* decision : {"--again=", "--done="}) {
    const auto other = cli_.run("dlq", "replay", "1", decision + token);
    EXPECT_EQ(other.code, 3) << other.out;
    EXPECT_THAT(other.err, HasSubstr("lock timeout"));
  }
  EXPECT_EQ(token_of("1"), token) << "the other operators have changed nothing";
}

/// Two handlers have refused the same record, so their letters come from the same place.
TEST_F(CliReplay, the_record_of_another_letter_does_not_settle_a_replay_in_doubt) {
  bury(7, "'{}'");
  know_by_place(7);
  sql("INSERT INTO dead (handler, slot, incarnation, record_offset, message_id, reason, error, attempts, header_names, "
      "header_values) SELECT 2, slot, incarnation, record_offset, message_id, reason, error, attempts, '{}', '{}' FROM dead");
  ASSERT_EQ(cli_.run("dlq", "replay", "1").code, 0);
  sql("UPDATE dead SET replayed_at = clock_timestamp() + interval '200000 years' WHERE id = 2");

  const auto token = token_of("2");
  const auto sent = kafka_.read(topic_, 1).at(0);
  EXPECT_EQ(header(sent, kReplayedFrom), topic_ + "[3]@7");
  EXPECT_THAT(header(sent, kReplayToken), ::testing::StartsWith("1-"));
  const auto show = cli_.run("dlq", "show", "2").out;
  EXPECT_THAT(show, AllOf(HasSubstr("turnstile-replay-token: " + token), Not(HasSubstr("turnstile-replayed-from"))));
  EXPECT_THAT(token, ::testing::StartsWith("2-"));
  for (const auto& decision : {std::string("--done"), std::string("--again"), "--done=" + header(sent, kReplayToken)}) {
    const auto refused = cli_.run("dlq", "replay", "2", decision);
    EXPECT_EQ(refused.code, 4) << refused.out;
    EXPECT_THAT(refused.err, HasSubstr("turnstile dlq replay 2 --done=" + token));
  }

  ASSERT_EQ(cli_.run("dlq", "replay", "2", "--again=" + token).code, 0);
  const auto again = kafka_.read(topic_, 2).at(1);
  EXPECT_EQ(header(again, kReplayedFor), "mail");
  EXPECT_NE(header(again, kReplayToken), token) << "the record of the first replay could still be found";
}

TEST_F(CliReplay, names_the_group_if_only_that_may_use_the_name_of_the_handler) {
  bury(7, "'{}'");
  bury(8, "'{}'");
  ASSERT_EQ(cli_.run("dlq", "replay", "1").code, 0);
  EXPECT_EQ(header(kafka_.read(topic_, 1).at(0), kReplayedGroup), "");
  sql("UPDATE handler SET consumer_group = 'billing'");
  ASSERT_EQ(cli_.run("dlq", "replay", "2").code, 0);
  EXPECT_EQ(header(kafka_.read(topic_, 2).at(1), kReplayedGroup), "billing");
}

TEST_F(CliReplay, a_replay_that_an_earlier_build_began_is_settled_without_a_token) {
  for (const Offset offset : {7, 8}) {
    bury(offset, "'{}'");
    know_by_place(offset);
  }
  sql("UPDATE dead SET replayed_at = 'infinity'");
  EXPECT_THAT(
      cli_.run("dlq", "show", "1").out,
      AllOf(HasSubstr("turnstile-replayed-from: " + topic_ + "[3]@7"), HasSubstr("turnstile-replayed-for: charge"),
            HasSubstr("dlq replay 1 --done; "), HasSubstr("dlq replay 1 --again")));
  EXPECT_EQ(cli_.run("dlq", "replay", "1").code, 4);
  EXPECT_EQ(cli_.run("dlq", "replay", "1", "--done").code, 0);
  EXPECT_EQ(cli_.run("dlq", "replay", "2", "--again").code, 0);
  EXPECT_EQ(sql("SELECT count(*) FROM dead WHERE replayed_at <= now()"), "2");
}

TEST_F(CliReplay, what_is_known_by_its_place_waits_as_before_when_the_broker_refuses_it) {
  bury(7, "convert_to(repeat('x', 2000000), 'UTF8')");  // more than a broker accepts
  for (int i = 0; i < 2; ++i) {
    if (i == 1) know_by_place(7);
    const auto refused = cli_.run("dlq", "replay", "1");
    EXPECT_EQ(refused.code, 4);
    EXPECT_THAT(refused.err, AllOf(HasSubstr("message.max.bytes"), Not(HasSubstr("--again"))));
    EXPECT_EQ(sql("SELECT replayed_at IS NULL FROM dead"), "t");
  }
  sql("UPDATE dead SET replayed_at = '2026-03-01 14:05:09.123456+00'");
  EXPECT_EQ(cli_.run("dlq", "replay", "1", "--again").code, 4);
  EXPECT_EQ(sql("SELECT replayed_at = '2026-03-01 14:05:09.123456+00' FROM dead"), "t");
  sql("UPDATE dead SET replayed_at = '202026-03-01 14:05:09.123456+00'");
  const auto token = token_of("1");
  EXPECT_EQ(cli_.run("dlq", "replay", "1", "--again=" + token).code, 4);
  EXPECT_EQ(token_of("1"), token) << "the first replay is still in doubt";
}

/// The leader of the partition refuses the second record, after the client has sent it.
TEST_F(CliReplay, all_goes_on_after_a_letter_known_by_its_place_that_the_broker_refuses) {
  read_from(kafka_.create_topic(4, {{"max.message.bytes", "1500"}}));
  bury(1, "'first'");
  bury(2, "convert_to(repeat('x', 5000), 'UTF8')");
  bury(3, "'last'");
  for (const Offset offset : {1, 2, 3}) know_by_place(offset);
  const auto all = cli_.run("dlq", "replay", "--all");
  EXPECT_EQ(all.code, 0) << all.err;
  EXPECT_THAT(all.out, AllOf(HasSubstr("1 -> "), HasSubstr("2 skipped: "), HasSubstr("max.message.bytes"),
                             HasSubstr("3 -> "), HasSubstr("1 dead letter skipped: cannot be sent back")));
  EXPECT_EQ(sql("SELECT string_agg(id::text, ' ') FROM dead WHERE replayed_at IS NULL"), "2");
}

TEST_F(CliReplay, all_goes_on_after_a_letter_known_by_its_place_that_the_broker_may_have) {
  const auto mock = broker_without_answer(2s);
  for (const Offset offset : {1, 2}) {
    bury(offset, "'{}'");
    know_by_place(offset);
  }
  const auto all = cli_.run("dlq", "replay", "--all");
  EXPECT_EQ(all.code, 1) << all.err;
  for (const std::string number : {"1", "2"}) {
    const auto token = token_of(number);
    EXPECT_THAT(all.out, AllOf(HasSubstr(number + " in doubt: "), HasSubstr("turnstile-replay-token: " + token),
                               HasSubstr("dlq replay " + number + " --again=" + token)));
  }
  EXPECT_THAT(all.out, Not(HasSubstr("..")));
  EXPECT_EQ(cli_.run("dlq", "replay", "1").code, 4);

  mock->allow_produce();
  EXPECT_EQ(cli_.run("dlq", "replay", "1", "--again=" + token_of("1")).code, 0);
}

/// The replay waits between the mark and the acknowledgement.
TEST_F(CliReplay, what_a_killed_replay_leaves_is_shown_and_waits_for_an_operator) {
  const auto mock = broker_without_answer(60s);
  bury(7, "'{}'");
  know_by_place(7);
  {
    const CliProcess killed({"dlq", "replay", "1"}, cli_.environment(), cli_.folder().path());
    ASSERT_TRUE(eventually([&] { return sql("SELECT replayed_at IS NOT NULL FROM dead") == "t"; }));
    killed.signal(SIGKILL);
  }
  const auto token = token_of("1");
  const auto what_to_do = AllOf(HasSubstr("look in " + topic_), HasSubstr("turnstile-replay-token: " + token),
                                HasSubstr("dlq replay 1 --done=" + token), HasSubstr("dlq replay 1 --again=" + token));
  EXPECT_THAT(cli_.run("dlq", "list").out, HasSubstr("failed (may have been replayed)"));
  EXPECT_THAT(cli_.run("dlq", "show", "1").out, what_to_do);
  EXPECT_THAT(cli_.run("doctor").out, ContainsRegex("warning +replays +1 dead letter may have been published: 1;"));
  const auto refused = cli_.run("dlq", "replay", "1");
  EXPECT_EQ(refused.code, 4);
  EXPECT_THAT(refused.err, what_to_do);
  EXPECT_THAT(cli_.run("dlq", "replay", "--all").out, HasSubstr("1 dead letter skipped: may have been published"));

  EXPECT_EQ(cli_.run("dlq", "replay", "1", "--done=" + token).code, 0);
  EXPECT_EQ(sql("SELECT replayed_at <= now() FROM dead"), "t");
  EXPECT_EQ(cli_.run("dlq", "replay", "1", "--done").code, 4) << "it is not in doubt";
}

TEST_F(CliReplay, a_second_signal_ends_a_replay_at_once) {
  const auto mock = broker_without_answer(60s);
  bury(7, "'{}'");
  know_by_place(7);
  for (const auto& [first, second] : {std::pair{SIGINT, SIGTERM}, {SIGTERM, SIGINT}, {SIGINT, SIGINT}}) {
    sql("UPDATE dead SET replayed_at = NULL");
    CliProcess twice({"dlq", "replay", "1"}, cli_.environment(), cli_.folder().path());
    ASSERT_TRUE(eventually([&] { return sql("SELECT replayed_at IS NOT NULL FROM dead") == "t"; }));
    twice.signal(first);
    std::this_thread::sleep_for(500ms);
    twice.signal(second);
    EXPECT_EQ(twice.wait(10s).code, 128 + second) << first;
  }
}

/// The broker does not acknowledge the letter in hand.
TEST_F(CliReplay, a_signal_ends_all_before_the_next_letter) {
  const auto mock = broker_without_answer(3s);
  for (const Offset offset : {7, 8}) {
    bury(offset, "'{}'");
    know_by_place(offset);
  }
  CliProcess interrupted({"dlq", "replay", "--all"}, cli_.environment(), cli_.folder().path());
  ASSERT_TRUE(eventually([&] { return sql("SELECT replayed_at IS NOT NULL FROM dead WHERE id = 1") == "t"; }));
  interrupted.signal(SIGINT);
  const auto ended = interrupted.wait(30s);
  EXPECT_EQ(ended.code, 128 + SIGINT) << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("1 in doubt: "));
  EXPECT_EQ(sql("SELECT replayed_at IS NULL FROM dead WHERE id = 2"), "t");
}

TEST_F(CliReplay, an_interrupt_waits_until_it_is_recorded_that_the_letter_was_published) {
  bury(7, "'{}'");
  know_by_place(7);
  sql("CREATE FUNCTION linger() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(2); RETURN NEW; END'; "
      "CREATE TRIGGER linger BEFORE UPDATE ON dead FOR EACH ROW WHEN (NEW.replayed_at < now() + interval '1 year') "
      "EXECUTE FUNCTION linger()");
  CliProcess interrupted({"dlq", "replay", "1"}, cli_.environment(), cli_.folder().path());
  ASSERT_TRUE(eventually([&] { return sql("SELECT replayed_at IS NOT NULL FROM dead") == "t"; }));
  interrupted.signal(SIGINT);
  const auto ended = interrupted.wait(std::chrono::seconds(30));
  EXPECT_EQ(ended.code, 128 + SIGINT);
  EXPECT_THAT(ended.out, HasSubstr("1 -> " + topic_));
  EXPECT_EQ(sql("SELECT replayed_at <= now() FROM dead"), "t");
  EXPECT_EQ(kafka_.read(topic_, 1).size(), 1U);
}

TEST_F(CliReplay, a_null_payload_stays_null) {
  bury(7, "NULL");
  ASSERT_EQ(cli_.run("dlq", "replay", "1").code, 0);
  EXPECT_EQ(kafka_.read(topic_, 1).at(0).payload, std::nullopt);
}

TEST_F(CliReplay, a_topic_that_is_gone_is_said_and_nothing_is_marked) {
  bury(7, "'{}'");
  sql("UPDATE fence SET topic = 'no-such-topic'");
  const auto replay = cli_.run("dlq", "replay", "1");
  EXPECT_EQ(replay.code, 1);
  EXPECT_THAT(replay.err, HasSubstr("topic no-such-topic does not exist"));
  EXPECT_EQ(sql("SELECT replayed_at IS NULL FROM dead"), "t");
}

TEST_F(CliReplay, one_that_cannot_be_sent_does_not_keep_the_others_back) {
  const auto other = [&](const char* topic) {
    sql(std::string("INSERT INTO fence (consumer_group, topic, partition) VALUES ('billing', '") + topic + "', 0)");
    return "(SELECT slot FROM fence WHERE topic = '" + std::string(topic) + "')";
  };
  bury(1, "'gone'");
  sql("UPDATE dead SET slot = " + other("no-such-topic") + " WHERE record_offset = 1");
  bury(2, "convert_to(repeat('x', 2000000), 'UTF8')");  // more than a broker accepts
  bury(3, "'damaged'");
  sql("UPDATE dead SET header_values = header_values[1:2] WHERE record_offset = 3");
  bury(4, "'unnamed'");
  sql("UPDATE dead SET header_names[2] = NULL WHERE record_offset = 4");
  bury(5, "'good'");

  EXPECT_THAT(
      cli_.run("dlq", "replay", "--all", "--dry-run").out,
      AllOf(HasSubstr("would replay 2 dead letters"), HasSubstr("would skip 1 dead letter: topic no-such-topic"),
            HasSubstr("would skip 2 dead letters: their rows were changed by hand")));
  const auto all = cli_.run("dlq", "replay", "--all");
  EXPECT_EQ(all.code, 0) << all.err;
  EXPECT_THAT(all.out,
              AllOf(HasSubstr("1 skipped: topic no-such-topic does not exist: create it, then replay"),
                    HasSubstr("2 skipped: "), HasSubstr("message.max.bytes"),
                    HasSubstr("3 skipped: dead letter 3: it has 3 header names but 2 header values"),
                    HasSubstr("4 skipped: dead letter 4: the name of a header is NULL"),
                    HasSubstr("5 -> " + topic_ + "[3]@0"), HasSubstr("4 dead letters skipped: cannot be sent back")));
  EXPECT_EQ(kafka_.read(topic_, 1).at(0).payload, "good");
  EXPECT_EQ(sql("SELECT string_agg(record_offset::text, ' ' ORDER BY id) FROM dead WHERE replayed_at IS NULL"),
            "1 2 3 4");

  EXPECT_EQ(cli_.run("dlq", "replay", "3").code, 4);
  EXPECT_THAT(cli_.run("dlq", "show", "3").out, HasSubstr("changed by hand"));
  const auto json = nlohmann::json::parse(cli_.run("dlq", "replay", "--all", "--json").out);
  EXPECT_EQ(json["cannot_be_sent"].size(), 4U);
}

TEST_F(CliReplay, all_passes_over_a_timestamp_that_is_none) {
  for (int offset = 1; offset <= 5; ++offset) bury(offset, "'{}'");
  sql("UPDATE dead SET record_timestamp = 'infinity' WHERE record_offset = 1");
  sql("UPDATE dead SET record_timestamp = '-infinity' WHERE record_offset = 2");
  sql("UPDATE dead SET record_timestamp = '294276-12-31 23:59:59+00' WHERE record_offset = 3");
  sql("UPDATE dead SET died_at = 'infinity' WHERE record_offset = 4");
  EXPECT_THAT(cli_.run("dlq", "replay", "--all", "--dry-run").out,
              AllOf(HasSubstr("would replay 2 dead letters"), HasSubstr("would skip 3 dead letters")));
  const auto all = cli_.run("dlq", "replay", "--all");
  EXPECT_EQ(all.code, 0) << all.err;
  EXPECT_THAT(all.out, AllOf(HasSubstr("1 skipped: dead letter 1: its record_timestamp is 'infinity'"),
                             HasSubstr("2 skipped: dead letter 2: its record_timestamp is '-infinity'"),
                             HasSubstr("3 skipped: "), HasSubstr("2 dead letters replayed")));
  EXPECT_EQ(sql("SELECT string_agg(record_offset::text, ' ' ORDER BY id) FROM dead WHERE replayed_at IS NULL"),
            "1 2 3");
  sql("UPDATE dead SET record_timestamp = NULL");
  EXPECT_EQ(cli_.run("dlq", "replay", "3").code, 0);
}

/// The message was replayed, died again, and was replayed again. Two places are known: the first one and the last one.
TEST_F(CliReplay, keeps_the_first_origin_of_what_dies_again) {
  bury(7, "'{}'");
  sql("UPDATE dead SET header_names = ARRAY['turnstile-replayed-from'::bytea, 'turnstile-replayed-for'], "
      "header_values = ARRAY['payments[0]@3'::bytea, 'charge']");
  ASSERT_EQ(cli_.run("dlq", "replay", "1").code, 0);
  std::map<std::string, std::string> headers;
  const auto records = kafka_.read(topic_, 1);
  for (const auto& header : records.at(0).headers) headers[header.name] = header.value.value_or("");
  EXPECT_EQ(headers["turnstile-first-origin"], "payments[0]@3");
  EXPECT_EQ(headers["turnstile-replayed-from"], topic_ + "[3]@7");
}

/// Without this count, a letter that a program replays again and again would never come to the limit of 16 deaths.
TEST_F(CliReplay, counts_deaths_over_replays) {
  bury(7, "'first death'");
  bury(8, "'fifth'");
  sql("UPDATE dead SET header_names = ARRAY['turnstile-deaths'::bytea], header_values = ARRAY['4'::bytea] WHERE record_offset = 8");
  ASSERT_EQ(cli_.run("dlq", "replay", "--all").code, 0);
  std::map<std::string, std::vector<std::string>> deaths;
  for (const auto& record : kafka_.read(topic_, 2)) {
    for (const auto& header : record.headers) {
      if (header.name == kDeaths) deaths[*record.payload].push_back(*header.value);
    }
  }
  EXPECT_EQ(deaths["first death"], std::vector<std::string>{"1"});
  EXPECT_EQ(deaths["fifth"], std::vector<std::string>{"5"});
}

}  // namespace
}  // namespace turnstile::test
