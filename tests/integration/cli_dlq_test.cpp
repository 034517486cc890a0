// turnstile dlq list and show, and what replay refuses, on a real PostgreSQL.

#include "tests/integration/cli_dlq.hpp"

#include <gmock/gmock.h>

namespace turnstile::test {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(CliDlq, list_says_what_died_and_why) {
  bury(7, "'{}'");
  const auto list = cli_.run("dlq", "list");
  EXPECT_EQ(list.code, 0) << list.err;
  EXPECT_THAT(list.out, ::testing::ContainsRegex("1 .*charge +payments.3.@7 +failed +5 +card declined"));
  sql("INSERT INTO fence (consumer_group, topic, partition) VALUES ('billing', 'emails', 0)");
  EXPECT_THAT(cli_.run("dlq", "list", "--topic", "emails").out, HasSubstr("no dead letters"));
}

TEST_F(CliDlq, show_prints_nothing_that_a_terminal_executes) {
  bury(7, "convert_to(E'first\\r\\tline\\nsecond\\u202Eline', 'utf8')");
  sql("UPDATE fence SET consumer_group = E'bil\\x1b[2Jling'");
  const auto show = cli_.run("dlq", "show", "1");
  EXPECT_THAT(show.out, AllOf(HasSubstr("first  line\nsecond line\n"), HasSubstr("(group bil [2Jling)"),
                              Not(ContainsRegex("[\r\t\x1b]"))));
  const auto json = nlohmann::json::parse(cli_.run("dlq", "show", "1", "--json").out);
  EXPECT_EQ(json["payload"], "first\r\tline\nsecond\u202eline");
}

TEST_F(CliDlq, a_folder_is_no_payload) {
  bury(7, "'{}'");
  const auto edit = cli_.run("dlq", "edit", "1", "--file", "/tmp");
  EXPECT_EQ(edit.code, 2) << edit.out;
  EXPECT_THAT(edit.err, HasSubstr("--file /tmp: cannot be read: Is a directory code=usage"));
  EXPECT_THAT(cli_.run("dlq", "edit", "1", "--file", "/nowhere").err, HasSubstr("No such file or directory"));
  cli_.folder().write("empty", "");
  EXPECT_EQ(cli_.run("dlq", "edit", "1", "--file", "empty").code, 0);
  EXPECT_EQ(sql("SELECT length(record_payload) FROM dead"), "0");
}

TEST_F(CliDlq, a_name_that_does_not_exist_is_not_taken_for_one_without_dead_letters) {
  bury(7, "'{}'");
  const auto refused = [&](const std::vector<std::string>& verb) {
    const auto result = cli_.run_all(verb);
    EXPECT_EQ(result.code, 2) << result.out;
    return result.err;
  };
  const auto topic =
      AllOf(HasSubstr("no consumer has ever read a topic \"paymets\""), HasSubstr("there are: payments"));
  EXPECT_THAT(refused({"dlq", "list", "--topic", "paymets"}), topic);
  EXPECT_THAT(refused({"dlq", "replay", "--all", "--topic", "paymets", "--kafka", "127.0.0.1:1"}), topic);
  EXPECT_THAT(refused({"dlq", "list", "--handler", "chrage"}), HasSubstr("there are: charge, mail"));
  EXPECT_THAT(
      refused({"dlq", "replay", "--all", "--reason", "bogus", "--kafka", "127.0.0.1:1"}),
      AllOf(HasSubstr("no dead letter can have the reason \"bogus\""), HasSubstr("failed, rejected, missing_id")));
}

TEST_F(CliDlq, list_stops_and_says_so) {
  for (int offset = 0; offset < 3; ++offset) bury(offset, "'{}'");
  const auto list = cli_.run("dlq", "list", "--most", "2");
  EXPECT_THAT(list.out,
              AllOf(HasSubstr("payments[3]@1"), Not(HasSubstr("payments[3]@2")), HasSubstr("there are more")));
  EXPECT_EQ(nlohmann::json::parse(cli_.run("dlq", "list", "--most", "2", "--json").out)["more"], true);
}

TEST_F(CliDlq, show_prints_the_record) {
  bury(7, "'{\"amount\": 12}'");
  const auto show = cli_.run("dlq", "show", "1");
  EXPECT_EQ(show.code, 0) << show.err;
  EXPECT_THAT(show.out, AllOf(HasSubstr("payments[3]@7 (group billing)"), HasSubstr("card declined"),
                              HasSubstr("message-id: order-17"), HasSubstr("trace: base64: AP8="),
                              HasSubstr("empty: null"), HasSubstr("k-1"), HasSubstr("{\"amount\": 12}"),
                              HasSubstr("2026-03-01 14:05:09 UTC"), HasSubstr("kept in this table only")));
}

TEST_F(CliDlq, show_never_sends_a_payloads_control_characters_to_the_terminal) {
  bury(7, "'\\x1b5d303b70776e6407'");  // ESC ] 0 ; p w n d BEL sets the title of the window
  const auto show = cli_.run("dlq", "show", "1");
  EXPECT_THAT(show.out, AllOf(Not(HasSubstr("\x1b")), HasSubstr("base64: G10wO3B3bmQH")));
  const auto json = nlohmann::json::parse(cli_.run("dlq", "show", "1", "--json").out);
  EXPECT_EQ(json["payload"]["base64"], "G10wO3B3bmQH");
  EXPECT_EQ(json["headers"][2]["value"], nullptr);
}

TEST_F(CliDlq, show_cuts_a_long_payload_unless_asked_for_all) {
  bury(7, "convert_to(repeat('x', 100000), 'UTF8')");
  EXPECT_THAT(cli_.run("dlq", "show", "1").out, HasSubstr("95.9 kB more; --full shows all"));
  EXPECT_THAT(cli_.run("dlq", "show", "1", "--full").out, HasSubstr(std::string(100000, 'x')));
}

/// A row that a person changed by hand can have such times. The command once refused the whole list because of such a
/// row.
TEST_F(CliDlq, an_infinite_time_does_not_hide_the_others) {
  for (int offset = 1; offset <= 5; ++offset) bury(offset, "'{}'");
  sql("UPDATE dead SET died_at = 'infinity', replayed_at = '-infinity' WHERE record_offset = 1");
  sql("UPDATE dead SET died_at = '-infinity' WHERE record_offset = 2");
  sql("UPDATE dead SET died_at = '294276-12-31 23:59:59+00' WHERE record_offset = 3");
  sql("UPDATE dead SET record_timestamp = 'infinity' WHERE record_offset = 4");
  const auto list = cli_.run("dlq", "list", "--all");
  EXPECT_EQ(list.code, 0) << list.err;
  for (int offset = 1; offset <= 5; ++offset) EXPECT_THAT(list.out, HasSubstr("payments[3]@" + std::to_string(offset)));
  EXPECT_EQ(cli_.run("dlq", "list", "--json").code, 0);
  for (const char* number : {"1", "2", "3", "4"}) EXPECT_EQ(cli_.run("dlq", "show", number).code, 0) << number;
  see(1, MessageId::from("order-18"), "'infinity'");
  EXPECT_EQ(cli_.run("inbox", "stats").code, 0);
  EXPECT_EQ(cli_.run("inbox", "inspect", "order-18").code, 0);
  EXPECT_THAT(cli_.run("doctor").out, HasSubstr("4 messages wait: 4 failed of charge"));
  EXPECT_THAT(cli_.run("dlq", "show", "4").out,
              AllOf(HasSubstr("its record_timestamp is 'infinity'"), ContainsRegex("timestamp +none")));
}

TEST_F(CliDlq, a_number_that_does_not_exist_is_said) {
  const auto show = cli_.run("dlq", "show", "99");
  EXPECT_EQ(show.code, 1);
  EXPECT_THAT(show.err, HasSubstr("there is no dead letter 99"));
  EXPECT_EQ(cli_.run("dlq", "replay", "99", "--kafka", "127.0.0.1:1").code, 1);
}

TEST_F(CliDlq, replay_needs_a_number_or_all) {
  EXPECT_THAT(cli_.run("dlq", "replay").err, HasSubstr("give the number of one dead letter, or --all"));
  EXPECT_EQ(cli_.run("dlq", "replay", "1", "--all").code, 2);
  for (const char* filter : {"--handler", "--topic"}) {
    const auto refused = cli_.run("dlq", "replay", "1", filter, "mail", "--kafka", "127.0.0.1:1");
    EXPECT_EQ(refused.code, 2);
    EXPECT_THAT(refused.err, HasSubstr("--handler and --topic go with --all"));
  }
}

TEST_F(CliDlq, replay_without_a_broker_says_so_and_marks_nothing) {
  bury(7, "'{}'");
  const auto unnamed = cli_.run("dlq", "replay", "1");
  EXPECT_EQ(unnamed.code, 2);
  EXPECT_THAT(unnamed.err, AllOf(HasSubstr("no broker is named"), HasSubstr("--kafka HOST:PORT")));
  const auto refused = cli_.run("dlq", "replay", "1", "--kafka", "127.0.0.1:1");
  EXPECT_EQ(refused.code, 3);
  EXPECT_THAT(refused.err, HasSubstr("127.0.0.1:1"));
  EXPECT_EQ(sql("SELECT replayed_at IS NULL FROM dead"), "t");
}

}  // namespace
}  // namespace turnstile::test
