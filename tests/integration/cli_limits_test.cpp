// Limits, permits and the token log from the command line, on Apache Kafka, with members of a domain in this process.

#include <gmock/gmock.h>
#include <signal.h>

#include "tests/integration/cli_domain.hpp"
#include "tokens/wire.hpp"
#include "turnstile/kafka/admin.hpp"

namespace turnstile::test {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// --- what needs no broker ---

TEST(CliLimitsUsage, help_says_which_limit_holds) {
  for (const auto& help :
       {Cli().run("limits", "--help"), Cli().run("limits", "list", "--help"), Cli().run("limits", "set", "--help")}) {
    EXPECT_EQ(help.code, 0);
    EXPECT_THAT(help.out,
                AllOf(HasSubstr("The effective limit is the one that an operator set"), HasSubstr("the lowest")));
  }
}

TEST(CliLimitsUsage, a_limit_out_of_range_is_refused) {
  for (const char* limit : {"-1", "1000000001", "99999999999999999999"}) {
    const auto set = Cli().run("limits", "set", "psp", limit);
    EXPECT_EQ(set.code, 2) << limit;
    EXPECT_THAT(set.err, HasSubstr(std::string("a limit is 0 (pauses the limiter) to 1,000,000,000, not ") + limit));
  }
  for (const char* limit : {"many", "6.4", "1e9", "5x", ""}) {
    const auto set = Cli().run("limits", "set", "psp", limit);
    EXPECT_EQ(set.code, 2) << limit;
  }
  EXPECT_THAT(Cli().run("limits", "set", "psp", "1e9").err, HasSubstr("\"1e9\" is not a whole number"));
  const auto bad_topic = Cli().run("permits", "--kafka", "127.0.0.1:1", "--topic", "x\n\"");
  EXPECT_EQ(bad_topic.code, 2);
  EXPECT_THAT(bad_topic.err, HasSubstr("--topic x \": Kafka allows 1 to 249 letters"));
  EXPECT_THAT(Cli().run("limits", "set", "psp").err, HasSubstr("N is required"));
  EXPECT_THAT(Cli().run("limits", "set", "psp", "1", "2").err, HasSubstr("not expected: 2"));
  EXPECT_THAT(Cli().run("limits", "set", "psp", "1", "--timeout", "soon").err, HasSubstr("write 500ms, 30s or 2m"));
}

TEST(CliLimitsUsage, without_a_broker_says_how_to_name_one) {
  for (const auto& run : {Cli().run("limits", "list"), Cli().run("permits"), Cli().run("log", "tail")}) {
    EXPECT_EQ(run.code, 2);
    EXPECT_THAT(run.err, HasSubstr("no broker is named"));
  }
}

TEST(CliLimitsUsage, where_each_process_counts_by_itself_there_is_nothing_to_set) {
  Cli cli;
  cli.folder().write("turnstile.toml",
                     "[kafka]\n\"bootstrap.servers\" = \"127.0.0.1:1\"\n[limits]\nover = \"process\"\n");
  const auto list = cli.run("limits", "list");
  EXPECT_EQ(list.code, 2);
  EXPECT_THAT(list.err, AllOf(HasSubstr("turnstile.toml:4: limits.over"), HasSubstr("each process counts by itself")));
}

TEST(CliLimitsUsage, a_point_is_a_position_or_a_time) {
  for (const char* at : {"", "yesterday", "-1", "25:00", "2026-13-01 00:00", "2026-02-30 00:00", "2026-03-01",
                         "2026-03-01 10:00 CET", "5 ago", "12:00:00."}) {
    const auto replay = Cli().run("log", "replay", "--kafka", "127.0.0.1:1", std::string("--at=") + at);
    EXPECT_EQ(replay.code, 2) << at;
  }
  EXPECT_THAT(Cli().run("log", "replay", "--kafka", "127.0.0.1:1", "--at", "yesterday").err,
              HasSubstr("\"yesterday\" is neither a position nor a time; write 1041,"));
}

// --- on Kafka ---

TokenSettings with_lease(std::chrono::milliseconds lease) {
  TokenSettings settings;
  settings.lease = lease;
  return settings;
}

class CliLimits : public CliDomain {
 protected:
  std::shared_ptr<TokenDomain> join(const std::string& client, const TokenSettings& tokens = with_lease(2s)) {
    return CliDomain::join(client, tokens);
  }

  static bool says_limit(const ports::Limiter& limiter, std::int64_t limit) {
    return eventually([&] { return limiter.state().limit == limit; });
  }

  [[nodiscard]] std::unique_ptr<ports::TokenLog> log() const {
    return kafka::find_token_log(settings(), topic_, make_logger({.level = "off"}));
  }
  void write(const std::string& bytes) {
    const auto to = log();
    ASSERT_TRUE(to);
    to->append(bytes);
    to->flush(10s);
  }
};

TEST_F(CliLimits, a_missing_token_log_is_named_and_not_made) {
  for (const auto& run : {cli_.run("limits", "list"), cli_.run("limits", "set", "psp", "3", "--ahead"),
                          cli_.run("permits"), cli_.run("log", "tail"), cli_.run("log", "replay", "--at", "0")}) {
    EXPECT_EQ(run.code, 1);
    EXPECT_THAT(run.err,
                AllOf(HasSubstr("there is no token log " + topic_), HasSubstr("turnstile.toml:2: limits.topic"),
                      HasSubstr("start one"), HasSubstr("--topic NAME")));
  }
  EXPECT_FALSE(log());
}

TEST_F(CliLimits, a_topic_of_several_partitions_is_no_token_log) {
  const auto data = kafka_.create_topic(2);
  const auto list = cli_.run("limits", "list", "--topic", data);
  EXPECT_EQ(list.code, 2);
  EXPECT_THAT(list.err,
              HasSubstr("topic " + data + " at " + kafka_.brokers() + " has 2 partitions, so it is not a token log"));
  EXPECT_EQ(cli_.run("permits", "--topic", data).code, 2);
}

TEST_F(CliLimits, the_log_is_found_by_the_group) {
  const std::string group = topic_ + "-group";
  cli_.folder().write("turnstile.toml", "[kafka]\n\"bootstrap.servers\" = \"x:1\"\n\"group.id\" = \"" + group + "\"\n");
  EXPECT_THAT(cli_.run("limits", "list").err, AllOf(HasSubstr("there is no token log " + group + ".tokens"),
                                                    HasSubstr("group.id is \"" + group + "\" (turnstile.toml)")));
}

TEST_F(CliLimits, list_shows_which_limit_holds_and_who_says_what) {
  const auto billing = join("billing"), mailer = join("mailer");
  const auto a = billing->open("psp", 64), b = mailer->open("psp", 8);
  ASSERT_TRUE(says_limit(*a, 8));
  const auto permits = take(*a, 3);
  const auto list = cli_.run("limits", "list");
  EXPECT_EQ(list.code, 0) << list.err;
  EXPECT_THAT(list.out, ContainsRegex("psp +8 +configuration \\(the lowest\\) "));
  EXPECT_THAT(list.out, ContainsRegex("HELD +FREE +BUSY"));
  EXPECT_EQ(cli_.run("limits", "--topic", topic_, "list").code, 0) << "as after the verb";
  EXPECT_THAT(list.out, AllOf(HasSubstr("8 by mailer@"), HasSubstr("64 by billing@"),
                              HasSubstr("The effective limit is the one that"),
                              HasSubstr("topic " + topic_ + " at " + kafka_.brokers())));
  const Json psp = json("limits", "list")["limiters"][0];
  EXPECT_EQ(psp["limiter"], "psp");
  EXPECT_EQ(psp["limit"], 8);
  EXPECT_EQ(psp["source"], "configuration");
  EXPECT_EQ(psp["set"], nullptr);
  EXPECT_EQ(psp["paused"], false);
  EXPECT_GE(psp["held"], 3);
  EXPECT_EQ(psp["held"].get<int>() + psp["free"].get<int>(), 8);
  EXPECT_EQ(psp["over"], false);
  EXPECT_EQ(psp["configured"].size(), 2U);
  EXPECT_EQ(psp["configured"][0]["pid"], getpid());
}

TEST_F(CliLimits, set_holds_for_members_that_run_and_unset_ends_it) {
  const auto billing = join("billing");
  const auto psp = billing->open("psp", 64);
  ASSERT_TRUE(says_limit(*psp, 64));
  const auto permits = take(*psp, 4);
  const auto set = cli_.run("limits", "set", "psp", "2");
  EXPECT_EQ(set.code, 0) << set.err;
  EXPECT_THAT(
      set.out,
      HasSubstr("psp: 2 at once over all members, set by an operator (before: 64, by configuration)\n"
                "4 are held: running handlers keep their permits, and no handler starts until it fits\n"
                "a process that is cut off from Kafka does not learn of it: it starts handlers under the earlier "
                "limit until 7/8 of its lease\n"
                "configured: 64 by 1 member; that is in effect again after: turnstile limits unset psp\n"));
  EXPECT_TRUE(says_limit(*psp, 2));
  EXPECT_FALSE(psp->try_acquire());
  const auto list = cli_.run("limits", "list");
  EXPECT_THAT(list.out, ContainsRegex("psp +2 +an operator +4 \\(over\\) +0 "));
  EXPECT_THAT(list.out, HasSubstr("psp: 4 are held, more than its limit: no handler starts until it fits"));

  const auto unset = cli_.run("limits", "unset", "psp");
  EXPECT_EQ(unset.code, 0) << unset.err;
  EXPECT_THAT(unset.out,
              HasSubstr("psp: 64 at once over all members, by configuration (before: 2, set by an operator)"));
  EXPECT_TRUE(says_limit(*psp, 64));
  EXPECT_THAT(cli_.run("limits", "unset", "psp").out,
              HasSubstr("psp: no operator has set it; in effect: 64, by configuration"));
}

TEST_F(CliLimits, zero_pauses_and_the_most_is_taken) {
  const auto billing = join("billing");
  const auto psp = billing->open("psp", 4);
  const auto permits = take(*psp, 1);
  EXPECT_THAT(cli_.run("limits", "set", "psp", "0").out,
              HasSubstr("psp: paused: no handler starts (before: 4, by configuration)\n"));
  EXPECT_TRUE(says_limit(*psp, 0));
  EXPECT_THAT(cli_.run("limits", "list").out, ContainsRegex("psp +0 \\(paused\\) +an operator"));
  EXPECT_EQ(json("limits", "list")["limiters"][0]["paused"], true);
  const Json change = json("limits", "set", "psp", "1000000000");
  EXPECT_EQ(change["before"]["set"], 0);
  EXPECT_EQ(change["now"]["limit"], 1'000'000'000);
  EXPECT_EQ(change["now"]["source"], "set");
  EXPECT_TRUE(says_limit(*psp, 1'000'000'000));
}

TEST_F(CliLimits, a_misspelt_limiter_is_refused_unless_it_is_set_ahead) {
  const auto billing = join("billing");
  const auto psp = billing->open("payments", 64);
  ASSERT_TRUE(eventually([&] { return !billing->permits().limiters.empty(); }));
  const auto misspelt = cli_.run("limits", "set", "paymnets", "0");
  EXPECT_EQ(misspelt.code, 1);
  EXPECT_THAT(misspelt.err, AllOf(HasSubstr("no limiter \"paymnets\""), HasSubstr("did you mean \"payments\"?"),
                                  HasSubstr("there are: payments"), HasSubstr("--ahead")));
  EXPECT_THAT(cli_.run("limits", "list").out, Not(HasSubstr("paymnets")));
  EXPECT_EQ(cli_.run("limits", "unset", "paymnets").code, 1);

  EXPECT_THAT(cli_.run("limits", "set", "smtp", "7", "--ahead").out,
              HasSubstr("smtp: 7 at once over all members, set by an operator (before: none)\n"
                        "no running member has this limiter: the limit applies to members that start later\n"));
  const auto smtp = billing->open("smtp", 16);
  EXPECT_TRUE(says_limit(*smtp, 7));
}

TEST_F(CliLimits, any_name_can_be_set_and_is_quoted_in_commands) {
  const auto billing = join("billing");
  const auto blanks = billing->open("a b; echo HACKED", 16), dashes = billing->open("--help", 16);
  ASSERT_TRUE(eventually([&] { return billing->permits().limiters.size() == 2; }));
  EXPECT_THAT(cli_.run("limits", "set", "a b; echo HACKED", "3").out,
              HasSubstr("after: turnstile limits unset 'a b; echo HACKED'\n"));
  EXPECT_TRUE(says_limit(*blanks, 3));
  EXPECT_THAT(cli_.run("limits", "set", "--", "--help", "3").out,
              HasSubstr("after: turnstile limits unset -- --help\n"));
  EXPECT_TRUE(says_limit(*dashes, 3));
}

TEST_F(CliLimits, permits_shows_who_holds_what_and_when_it_comes_back) {
  const auto billing = join("billing");
  const auto psp = billing->open("psp", 64);
  const auto permits = take(*psp, 3);
  const auto shown = cli_.run("permits");
  EXPECT_EQ(shown.code, 0) << shown.err;
  EXPECT_THAT(shown.out, ContainsRegex("psp +64 +billing@.*:" + std::to_string(getpid()) +
                                       " +3 .* UTC @[0-9]+ +(in [0-9]+m?s|1s ago)"));
  const Json all = json("permits");
  const Json permit = all["permits"][0];
  EXPECT_EQ(permit["limiter"], "psp");
  EXPECT_EQ(permit["client"], "billing");
  EXPECT_EQ(permit["pid"], getpid());
  EXPECT_EQ(permit["held"], 3);
  EXPECT_EQ(permit["draining"], false);
  EXPECT_EQ(permit["strict"], false);
  EXPECT_EQ(permit["lease_ms"], 2'000);
  EXPECT_LE(permit["since_position"], permit["heard_position"]);
  EXPECT_LE(permit["since"], permit["heard_at"]);
  EXPECT_LT(permit["heard_at"], permit["expires_at"]);
}

TEST_F(CliLimits, permits_shows_who_drains) {
  TokenSettings strict = with_lease(2s);
  strict.strict = true;
  const auto billing = join("billing", strict), heir = join("heir");
  const auto psp = billing->open_for_partitions("psp", 64);
  const auto permits = take(*psp, 2);
  const TopicPartition orders{"orders", 0};
  const auto log_says = [&](const std::string& text) {
    return eventually([&] { return cli_.run("log", "tail", "-n", "1000").out.find(text) != std::string::npos; });
  };
  billing->on_claimed("billing", "db", orders, Epoch{1});
  ASSERT_TRUE(log_says("partitions claimed: orders[0] of group billing fenced by epoch 1"));
  heir->on_claimed("billing", "db", orders, Epoch{2});
  ASSERT_TRUE(log_says("partitions claimed: orders[0] of group billing fenced by epoch 2 | drains: billing@"));
  const auto shown = cli_.run("permits");
  EXPECT_THAT(shown.out, ContainsRegex("billing@[^ ]+ +2 .* draining, strict\n"));
  EXPECT_THAT(shown.out, HasSubstr("draining: others have its partitions"));
  EXPECT_EQ(json("permits")["permits"][0]["draining"], true);
}

TEST_F(CliLimits, list_shows_what_is_set_aside) {
  TokenSettings reserve = with_lease(2s);
  reserve.reserve = 1;
  reserve.reserve_for = 3;
  const auto billing = join("billing", reserve);
  const auto psp = billing->open("psp", 64);
  ASSERT_TRUE(eventually([&] { return !billing->permits().limiters.empty(); }));
  EXPECT_THAT(cli_.run("limits", "list").out,
              HasSubstr("psp: of its limit, 3 are reserved for members that cannot reach "
                        "the log ([limits] reserve), 61 are shared"));
}

TEST_F(CliLimits, what_the_dead_hold_is_shown_with_its_lease_over_while_nobody_is_there_to_notice) {
  join("billing").reset();  // creates the topics, and leaves
  const tokens::Joined dead{.host = "far", .pid = 1, .client = "dead", .lease_ms = 10};
  write(tokens::encode({.member = 99, .epoch = 1, .seq = 1, .body = dead}));
  write(tokens::encode({.member = 99,
                        .epoch = 1,
                        .seq = 2,
                        .body = tokens::Acquire{.line = {.limiter = "psp", .limit = 64, .wants = 2}}}));
  ASSERT_TRUE(eventually([&] { return json("permits")["permits"].size() == 1; }));
  ASSERT_TRUE(eventually([&] { return cli_.run("permits").out.find(" ago") != std::string::npos; }));
  const auto shown = cli_.run("permits");
  EXPECT_THAT(shown.out, ContainsRegex("psp +64 +dead@far:1 +2 +0 +2 .* [0-9]+m?s ago\n"));
  EXPECT_THAT(shown.out, HasSubstr("its permits return once another member has run"));

  const auto heir = join("heir");
  EXPECT_TRUE(eventually([&] { return json("permits")["permits"].empty(); }));
  EXPECT_THAT(cli_.run("log", "tail", "-n", "1000").out,
              ContainsRegex("expire: dead@far:1, silent since position [0-9]+ [|] psp 2 -> 0"));
}

TEST_F(CliLimits, those_who_hold_and_want_nothing_are_counted) {
  const auto billing = join("billing");
  const auto psp = billing->open("psp", 64);
  ASSERT_TRUE(eventually([&] { return !billing->permits().limiters.empty(); }));
  EXPECT_THAT(cli_.run("permits").out, AllOf(HasSubstr("no process holds or wants a permit"),
                                             HasSubstr("members that hold and want nothing: 1 (--all")));
  EXPECT_THAT(cli_.run("permits", "--all").out, HasSubstr("billing@"));
}

TEST_F(CliLimits, tail_shows_what_was_written_and_what_it_meant) {
  const auto billing = join("billing");
  const auto psp = billing->open("psp", 64);
  auto permits = take(*psp, 3);
  write("rubbish");
  write(tokens::encode({.member = 99, .epoch = 1, .seq = 1, .body = tokens::Left{}}));
  ASSERT_EQ(cli_.run("limits", "set", "psp", "5").code, 0);
  const auto tail = cli_.run("log", "tail", "-n", "1000");
  EXPECT_EQ(tail.code, 0) << tail.err;
  EXPECT_THAT(tail.out, ContainsRegex(" 0  20[0-9-]+T[0-9:.]+Z  applied +billing@[^ ]+ +joined: lease 2000 ms"));
  EXPECT_THAT(tail.out, ContainsRegex("psp: wants 3.* [|] psp 0 -> [1-3]\n"));
  EXPECT_THAT(tail.out, ContainsRegex("unknown +- +unknown: 7 bytes that are not an event\n"));
  EXPECT_THAT(tail.out, ContainsRegex("stranger +member 99 +left\n"));
  EXPECT_THAT(tail.out, ContainsRegex("applied +an operator +limit set: psp: 5, by .+@.+\n"));

  const auto last = cli_.run("log", "tail", "-n", "1", "--json");
  const Json record = Json::parse(last.out, nullptr, false);
  EXPECT_EQ(record["outcome"], "applied") << last.out;
  EXPECT_EQ(cli_.run("log", "tail", "-n", "0").out, "");
}

TEST_F(CliLimits, tail_follows_until_it_is_interrupted) {
  const auto billing = join("billing", with_lease(60s));  // a Keep event every 15 s
  const auto psp = billing->open("psp", 64);
  ASSERT_TRUE(eventually([&] { return !billing->permits().limiters.empty(); }));
  CliProcess follow({"log", "tail", "--follow", "-n", "1", "--json"}, cli_.environment(), cli_.folder().path());
  EXPECT_EQ(Json::parse(follow.first_line(30s), nullptr, false)["outcome"], "applied");
  ASSERT_EQ(cli_.run("limits", "set", "psp", "5").code, 0);
  CliProcess again({"log", "tail", "-f", "-n", "0", "--json"}, cli_.environment(), cli_.folder().path());
  std::string line;
  for (int tries = 0; tries < 20 && line.empty(); ++tries) {
    ASSERT_EQ(cli_.run("limits", "set", "psp", "6").code, 0);
    line = again.first_line(1s);
  }
  EXPECT_THAT(Json::parse(line, nullptr, false)["details"].dump(), StartsWith("\"psp: 6, by "));
  EXPECT_TRUE(follow.prints("\"details\":\"psp: 5, by ", 30s));
  follow.signal(SIGINT);
  EXPECT_EQ(follow.wait(20s).code, 128 + SIGINT);
}

TEST_F(CliLimits, replay_says_who_held_what_at_a_position_or_a_time) {
  const auto billing = join("billing");
  const auto psp = billing->open("psp", 64);
  auto permits = take(*psp, 3);
  ASSERT_EQ(cli_.run("limits", "set", "psp", "5").code, 0);
  const Json then = json("permits");
  const std::int64_t position = then["position"];
  permits.clear();
  ASSERT_TRUE(eventually([&] { return json("permits")["permits"][0]["held"] == 0; }));

  const Json replayed = json("log", "replay", "--at", std::to_string(position));
  EXPECT_EQ(replayed["position"], position);
  EXPECT_EQ(replayed["permits"], then["permits"]);
  const std::string time = replayed["time"];
  const Json by_time = json("log", "replay", "--at", time);
  EXPECT_GE(by_time["position"], position);
  // If several records have the same millisecond, the last one counts. A member may hold more permits than it uses.
  EXPECT_EQ(by_time["permits"], json("log", "replay", "--at", by_time["position"].dump())["permits"]);
  ASSERT_FALSE(by_time["permits"].empty()) << "at " << time << ": " << by_time << ", before: " << then;
  EXPECT_GE(by_time["permits"][0]["held"], 3);
  const auto text = cli_.run("log", "replay", "--at", std::to_string(position));
  EXPECT_THAT(text.out, AllOf(HasSubstr("after position " + std::to_string(position) + " (20"), HasSubstr("billing@")));

  EXPECT_EQ(json("log", "replay", "--at", "2000-01-01 00:00")["position"], -1);
  EXPECT_THAT(cli_.run("log", "replay", "--at", "1h ago").out, HasSubstr("before anything was written"));
  const auto beyond = cli_.run("log", "replay", "--at", "1000000");
  EXPECT_EQ(beyond.code, 1);
  EXPECT_THAT(beyond.err, HasSubstr("has no position 1000000: its last is "));
}

TEST_F(CliLimits, what_members_have_cut_off_is_said) {
  TokenSettings quick = with_lease(800ms);
  quick.snapshot_every = 16;
  auto billing = join("billing", quick), mailer = join("mailer", quick);
  auto a = billing->open("psp", 64), b = mailer->open("psp", 64);
  const auto reading = log();
  ASSERT_TRUE(eventually([&] { return reading->begin() > 0; }, 60s));
  const auto replay = cli_.run("log", "replay", "--at", "0");
  EXPECT_EQ(replay.code, 1);
  EXPECT_THAT(replay.err,
              AllOf(HasSubstr("the holders of permits at position 0 are no longer known: the log was trimmed"),
                    ContainsRegex("begins at position [1-9][0-9]* \\(20.* UTC\\)"),
                    ContainsRegex("The first known position is [1-9]")));
  const auto by_time = cli_.run("log", "replay", "--at", "1h ago");
  EXPECT_EQ(by_time.code, 1);
  EXPECT_THAT(by_time.err, HasSubstr("are no longer known"));
  EXPECT_EQ(json("limits", "list")["limiters"][0]["limit"], 64);
  EXPECT_EQ(json("permits")["permits"].size(), 2U);
  // Members that live on would cut off what the command is about to read.
  a.reset();
  b.reset();
  billing.reset();
  mailer.reset();
  const auto tail = cli_.run("log", "tail", "-n", "1000000");
  EXPECT_EQ(tail.code, 0) << tail.err;
  EXPECT_THAT(tail.err, ContainsRegex("records before position [1-9][0-9]* are no longer kept"));
  EXPECT_THAT(tail.out, HasSubstr("applied"));
}

}  // namespace
}  // namespace turnstile::test
