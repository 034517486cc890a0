// turnstile outbox, on a real PostgreSQL.

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <numeric>
#include <vector>

#include "tests/integration/cli_database.hpp"
#include "turnstile/ports/store.hpp"
#include "turnstile/postgres/store.hpp"

namespace turnstile::test {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

class CliOutbox : public CliDatabase {
 protected:
  void SetUp() override {
    CliDatabase::SetUp();
    if (!IsSkipped()) migrate();
  }
  void refuse(const std::string& key, const std::string& why = "too large") {
    sql("INSERT INTO outbox (shard, topic, record_key, record_payload, refused) VALUES (-1, 'orders', " + key +
        ", 'abc', '" + why + "')");
  }
};

TEST_F(CliOutbox, stats_say_what_waits_and_who_sends) {
  const auto empty = cli_.run("outbox", "stats");
  EXPECT_EQ(empty.code, 0) << empty.err;
  EXPECT_THAT(empty.out,
              AllOf(ContainsRegex("waiting +0\n"), ContainsRegex("refused +0\n"), HasSubstr("none: a consumer")));
  sql("INSERT INTO outbox (topic) VALUES ('orders'), ('orders')");
  refuse("'k'");
  sql("UPDATE outbox_relay SET owner = 'billing 1234', expires_at = clock_timestamp() + interval '1 hour' WHERE shard < 3");
  const auto stats = cli_.run("outbox", "stats");
  EXPECT_THAT(stats.out, AllOf(ContainsRegex("waiting +2, since 20"), HasSubstr("1; see: turnstile outbox list"),
                               ContainsRegex("relays +billing 1234")));
  const Json json = Json::parse(cli_.run("outbox", "stats", "--json").out);
  EXPECT_EQ(json["waiting"], 2);
  EXPECT_EQ(json["relays"], Json::array({"billing 1234"}));
}

TEST_F(CliOutbox, scheduled_messages_are_listed_and_cancelled_by_their_id) {
  EXPECT_THAT(cli_.run("outbox", "scheduled").out, HasSubstr("nothing is scheduled"));
  const MessageId id = MessageId::from("order-17");
  sql("INSERT INTO scheduled (due_at, topic, record_key, record_payload, message_id) VALUES "
      "('2999-01-01', 'reminders', 'k', 'abc', '" +
      id.text() + "'), ('9999-12-31 23:59:59+00', 'other', NULL, NULL, DEFAULT)");
  EXPECT_THAT(cli_.run("outbox", "scheduled").out,
              AllOf(HasSubstr("2999-01-01"), HasSubstr(id.text()), HasSubstr("9999-12-31 23:59:59 UTC")));
  EXPECT_THAT(cli_.run("outbox", "stats").out, ContainsRegex("scheduled +2, the first for 2999"));
  const Json json = Json::parse(cli_.run("outbox", "scheduled", "--topic", "reminders", "--json").out);
  ASSERT_EQ(json["scheduled"].size(), 1U);
  EXPECT_EQ(json["scheduled"][0]["key"], "k");
  EXPECT_THAT(cli_.run("outbox", "cancel", "order-17").out, HasSubstr("cancelled: 1 message will never be sent"));
  const auto again = cli_.run("outbox", "cancel", "order-17");
  EXPECT_EQ(again.code, 1);
  EXPECT_THAT(again.err, HasSubstr("no scheduled message has the id order-17"));
  EXPECT_EQ(sql("SELECT count(*) FROM scheduled"), "1");
}

// Any role that publishes may insert them.
TEST_F(CliOutbox, infinite_times_do_not_stop_the_relay) {
  sql("INSERT INTO scheduled (due_at, topic) VALUES ('-infinity', 'orders'), ('infinity', 'orders'), "
      "('294276-12-31', 'orders'), ('4713-01-01 BC', 'orders'), (now(), 'orders')");
  PostgresSettings settings;
  settings.url = Secret(url_);
  settings.schema = schema_;
  const auto outbox = postgres::open_store(settings)->outbox();
  std::vector<ports::OutboxShard> shards(ports::kOutboxShards);
  std::iota(shards.begin(), shards.end(), ports::OutboxShard{0});
  const auto due = outbox->release_due(shards, 100);
  EXPECT_EQ(due.moved, 3U);
  EXPECT_EQ(outbox->release_due(shards, 100).moved, 0U);
  EXPECT_EQ(sql("SELECT count(*) FROM scheduled"), "2");
}

TEST_F(CliOutbox, list_says_what_was_refused_and_why) {
  EXPECT_THAT(cli_.run("outbox", "list").out, HasSubstr("nothing was refused"));
  refuse("'\\x00'", "too large " + std::string(1, 27) + "[2J");
  const auto list = cli_.run("outbox", "list");
  EXPECT_THAT(list.out, AllOf(ContainsRegex("1 .*orders +4 +too large"), Not(HasSubstr("\x1b"))));
  const Json json = Json::parse(cli_.run("outbox", "list", "--json").out);
  EXPECT_EQ(json["refused"][0]["key"]["base64"], "AA==");
}

TEST_F(CliOutbox, lists_tell_that_there_are_more) {
  for (int i = 0; i < 3; ++i) refuse("'k'");
  sql("INSERT INTO scheduled (due_at, topic) SELECT '2999-01-01', 'orders' FROM generate_series(1, 3)");
  for (const char* verb : {"list", "scheduled"}) {
    EXPECT_THAT(cli_.run("outbox", verb, "--most", "2").out, HasSubstr("there are more: --most N")) << verb;
    EXPECT_THAT(cli_.run("outbox", verb, "--most", "3").out, Not(HasSubstr("there are more"))) << verb;
    const std::string field = verb == std::string("list") ? "refused" : verb;
    for (const char* most : {"2", "3"}) {
      const Json json = Json::parse(cli_.run("outbox", verb, "--most", most, "--json").out);
      EXPECT_EQ(json[field].size(), std::stoul(most)) << verb;
      EXPECT_EQ(json["more"], most == std::string("2")) << verb;
    }
  }
}

TEST_F(CliOutbox, bytes_are_those_of_key_payload_and_headers) {
  sql("INSERT INTO outbox (shard, topic, record_key, record_payload, header_names, header_values, refused) VALUES "
      "(-1, 'orders', 'key', 'payload', '{big,none}', ARRAY[convert_to(repeat('h', 5000), 'UTF8'), NULL], 'large'), "
      "(-1, 'orders', NULL, NULL, '{}', '{}', 'empty')");
  sql("INSERT INTO scheduled (due_at, topic, record_key, record_payload, header_names, header_values) VALUES "
      "('2999-01-01', 'orders', 'key', 'payload', '{big}', ARRAY[convert_to(repeat('h', 5000), 'UTF8')])");
  const Json refused = Json::parse(cli_.run("outbox", "list", "--json").out);
  EXPECT_EQ(refused["refused"][0]["bytes"], 3 + 7 + 3 + 4 + 5'000);
  EXPECT_EQ(refused["refused"][1]["bytes"], 0);
  const Json scheduled = Json::parse(cli_.run("outbox", "scheduled", "--json").out);
  EXPECT_EQ(scheduled["scheduled"][0]["bytes"], 3 + 7 + 3 + 5'000);
}

TEST_F(CliOutbox, retry_puts_them_back_where_their_key_belongs) {
  refuse("'k'");
  refuse("'k'");
  refuse("NULL");
  EXPECT_THAT(cli_.run("outbox", "retry", "1").out, HasSubstr("1 message will be sent again"));
  EXPECT_THAT(cli_.run("outbox", "retry", "--all").out, HasSubstr("2 messages will be sent again"));
  EXPECT_EQ(sql("SELECT count(DISTINCT shard) FROM outbox WHERE record_key = 'k'"), "1");
  EXPECT_EQ(sql("SELECT count(*) FROM outbox WHERE shard >= 0 AND refused IS NULL"), "3");
}

TEST_F(CliOutbox, drop_forgets_one) {
  refuse("'k'");
  EXPECT_THAT(cli_.run("outbox", "drop", "010").err, HasSubstr("has the number 10;"));
  EXPECT_EQ(cli_.run("outbox", "drop", "1").code, 0);
  EXPECT_EQ(sql("SELECT count(*) FROM outbox"), "0");
}

TEST_F(CliOutbox, wrong_numbers_are_said) {
  sql("INSERT INTO outbox (topic) VALUES ('waits')");
  for (const char* verb : {"retry", "drop"}) {
    const auto run = cli_.run("outbox", verb, "1");
    EXPECT_EQ(run.code, 1) << verb;
    EXPECT_THAT(run.err, HasSubstr("no refused message has the number 1")) << verb;
  }
  EXPECT_EQ(cli_.run("outbox", "retry").code, 2);
  EXPECT_EQ(cli_.run("outbox", "retry", "1", "--all").code, 2);
  EXPECT_EQ(sql("SELECT count(*) FROM outbox"), "1") << "what waits is not dropped";
}

}  // namespace
}  // namespace turnstile::test
