// turnstile limits divide, on Apache Kafka, with members of a domain in this process.

#include <gmock/gmock.h>
#include <spdlog/spdlog.h>

#include "permits/domain_snapshots.hpp"
#include "tests/integration/cli_domain.hpp"
#include "tests/support/captured_log.hpp"
#include "tokens/parts.hpp"
#include "tokens/snapshot.hpp"
#include "tokens/state.hpp"
#include "tokens/wire.hpp"
#include "turnstile/kafka/admin.hpp"

namespace turnstile::test {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class LimitsDivide : public CliDomain {
 protected:
  std::shared_ptr<TokenDomain> join(const std::string& client, std::uint32_t reserve = 0) {
    TokenSettings tokens;
    tokens.lease = 4s;
    tokens.reserve = tokens.reserve_for = reserve;
    return CliDomain::join(client, tokens);
  }

  /// Absent: there is no such row.
  static std::optional<std::int64_t> held_by(const Json& permits, const std::string& limiter,
                                             const std::string& client) {
    for (const Json& row : permits) {
      if (row["limiter"] == limiter && row["client"] == client) return row["held"].get<std::int64_t>();
    }
    return std::nullopt;
  }
};

TEST_F(LimitsDivide, divides_a_log_in_use) {
  const auto one = join("one"), two = join("two");
  const auto psp = one->open("psp", 2), mail = two->open("mail", 3);
  auto in_use = take(*psp, 1);
  take(*mail, 3).clear();
  const auto first = json("limits", "divide", "4", "--timeout", "3s");
  EXPECT_EQ(first["parts"], 4);
  EXPECT_EQ(first["still_moving"], Json::array({"psp"}));
  const Json moving = json("limits", "list")["limiters"][1];
  EXPECT_EQ(moving["limiter"], "psp");
  EXPECT_EQ(moving["moving"], true);
  EXPECT_EQ(moving["free"], 0);
  EXPECT_THAT(cli_.run("permits").out, AllOf(HasSubstr("no handler starts under"), HasSubstr("divided into 4 parts")));
  EXPECT_FALSE(in_use.front().lost().stop_requested());
  const auto too_early = cli_.run("limits", "set", "psp", "3");
  EXPECT_EQ(too_early.code, 4);
  EXPECT_THAT(too_early.err, AllOf(HasSubstr("code=operation_refused"), HasSubstr("Set its limit again then")));
  in_use.clear();
  const auto second = json("limits", "divide", "4");
  EXPECT_EQ(second["was_divided"], true);
  EXPECT_EQ(second["still_moving"], Json::array());
  EXPECT_TRUE(eventually([&] { return json("limits", "list")["limiters"][1]["moving"] == false; }));
  const auto of_psp = take(*psp, 2), of_mail = take(*mail, 3);

  const auto late = join("late");  // it begins with the divided log
  const auto there = late->open("psp", 2);
  there->expect(1);
  there->when_free([] {});
  EXPECT_TRUE(eventually([&] {
    const Json permits = json("permits", "--all")["permits"];
    return held_by(permits, "psp", "one") == 2 && held_by(permits, "mail", "two") == 3 &&
           held_by(permits, "psp", "late") == 0;
  }));
  const Json held = json("permits");
  EXPECT_EQ(held["permits"].size(), 3U) << held;
  for (const Json& row : held["permits"]) {
    EXPECT_EQ(row["since"].is_null(), row["held"] == 0) << row;
    EXPECT_FALSE(row["expires_at"].is_null()) << row;
  }
  EXPECT_FALSE(there->try_acquire());
  EXPECT_EQ(cli_.run("limits", "set", "psp", "3").code, 0);
  EXPECT_EQ(take(*there, 1).size(), 1U);
  EXPECT_EQ(json("limits", "list")["limiters"][1]["limit"], 3);
  EXPECT_THAT(cli_.run("limits", "history").out, AllOf(HasSubstr("PART"), HasSubstr("psp")));
  EXPECT_EQ(json("limits", "history")["changes"][0]["part"], tokens::part_of("psp", 4));

  // On a busy machine the members have written more than 20 events since then.
  EXPECT_THAT(cli_.run("log", "tail", "-n", "1000", "--limiter", "psp").out, HasSubstr("limit set: psp: 3"));
  const auto directory = cli_.run("log", "tail", "-n", "1000");
  EXPECT_THAT(directory.out, AllOf(HasSubstr("divided: the log has 4 parts"), Not(HasSubstr("limit set"))));
  EXPECT_THAT(directory.err, AllOf(HasSubstr("divided into 4 parts"), HasSubstr("--limiter NAME")));
  const auto then = json("log", "replay", "--at", "1s ago", "--limiter", "mail");
  EXPECT_EQ(then["permits"][0]["limiter"], "mail") << then;
  EXPECT_THAT(cli_.run("log", "replay", "--at", "1s ago").err, HasSubstr("--limiter NAME"));
}

/// A process is a member of each part whose limiters it uses.
TEST_F(LimitsDivide, doctor_counts_a_process_once_and_unknown_limiters_are_named) {
  const auto one = join("one");
  EXPECT_EQ(cli_.run("limits", "divide", "4").code, 0);
  std::vector<std::shared_ptr<ports::Limiter>> limiters;
  for (const std::string name : {"psp", "mail", "sms", "bank"}) {
    limiters.push_back(one->open(name, 2));
    take(*limiters.back(), 1).clear();
  }
  EXPECT_TRUE(eventually([&] {
    const std::string out = cli_.run("doctor").out;
    return out.find(", 1 member\n") != std::string::npos;
  })) << cli_.run("doctor").out;
  const auto unknown = cli_.run("log", "tail", "--limiter", "nosuch");
  EXPECT_EQ(unknown.code, 0);
  EXPECT_THAT(unknown.err,
              AllOf(HasSubstr("no limiter \"nosuch\" is in topic " + topic_), HasSubstr("turnstile limits list")));
  EXPECT_THAT(cli_.run("log", "tail", "--limiter", "psp").err, Not(HasSubstr("no limiter")));
}

TEST_F(LimitsDivide, refuses_while_members_cannot_follow) {
  const auto domain = join("billing", 1);
  const auto psp = domain->open("psp", 3);
  EXPECT_TRUE(eventually([&] {
    const auto run = cli_.run("limits", "divide", "4");
    return run.code != 0 && run.err.find("[limits] reserve") != std::string::npos &&
           run.err.find("billing") != std::string::npos;
  }));
  {
    const auto log = kafka::find_token_log(settings(), topic_, nullptr);
    ASSERT_TRUE(log);
    log->append(tokens::encode(
        {7, 1, 1, tokens::Joined{.host = "old-1", .pid = 4, .client = "old", .lease_ms = 60'000, .knows = 1}}));
    log->flush(10s);
  }
  const auto run = cli_.run("limits", "divide", "4");
  EXPECT_EQ(run.code, 4);
  EXPECT_THAT(run.err, AllOf(HasSubstr("code=operation_refused"), HasSubstr("cannot read a divided log"),
                             HasSubstr("old@old-1:4")));
}

/// As members that start while an operator divides the log, or after an operator was killed half way.
TEST_F(LimitsDivide, members_start_whatever_number_of_partitions_the_topics_have) {
  const auto one = join("one");
  take(*one->open("psp", 2), 2).clear();
  kafka::extend_topic(settings(), topic_ + ".snapshots", 4);
  EXPECT_EQ(take(*join("two")->open("psp", 2), 1).size(), 1U);
  kafka::extend_topic(settings(), topic_, 4);
  EXPECT_EQ(take(*join("three")->open("psp", 2), 1).size(), 1U);
  kafka::extend_topic(settings(), topic_, 6);
  EXPECT_EQ(json("limits", "divide", "4")["parts"], 4);
  EXPECT_EQ(take(*join("four")->open("psp", 2), 1).size(), 1U);
  kafka::extend_topic(settings(), topic_ + ".snapshots", 8);
  EXPECT_EQ(json("limits", "divide", "4")["was_divided"], true);
  const auto other_number = cli_.run("limits", "divide", "8");
  EXPECT_EQ(other_number.code, 4);
  EXPECT_THAT(other_number.err, AllOf(HasSubstr("code=operation_refused"), HasSubstr("divided already, into 4 parts")));
  EXPECT_EQ(take(*join("five")->open("psp", 2), 1).size(), 1U);
}

TEST_F(LimitsDivide, partitions_that_were_added_by_hand_are_put_to_use) {
  // Why a process that joins the domain does not start. Empty: it does.
  const auto why_not = [&] {
    try {
      (void)kafka::open_token_log(settings(), {.name = topic_}, nullptr);
      return std::string();
    } catch (const BrokerError& error) {
      return std::string(error.what());
    }
  };
  take(*join("one")->open("psp", 2), 2).clear();
  kafka::extend_topic(settings(), topic_, 3);
  EXPECT_THAT(why_not(), AllOf(HasSubstr("has 3 partitions"), HasSubstr("has 1 partition."),
                               HasSubstr("turnstile limits divide 3"), Not(HasSubstr("--delete"))));
  EXPECT_EQ(cli_.run("limits", "divide", "3").code, 0);
  EXPECT_EQ(why_not(), "");
  EXPECT_EQ(take(*join("two")->open("psp", 2), 2).size(), 2U);

  kafka::delete_topic(settings(), topic_ + ".snapshots");
  EXPECT_THAT(why_not(), AllOf(HasSubstr("does not exist"), HasSubstr(topic_ + ".snapshots --partitions 3")));
  EXPECT_THAT(cli_.run("limits", "list").err, HasSubstr("is not a token log"));
  EXPECT_TRUE(eventually([&] {
    try {
      return kafka::create_topic(settings(), {topic_ + ".snapshots", 2, 1, {{"cleanup.policy", "compact"}}});
    } catch (const BrokerError&) {
      return false;  // it is still being deleted
    }
  }));
  EXPECT_EQ(why_not(), "");
  try {
    (void)kafka::open_token_log_part(settings(), {.name = topic_}, 2, nullptr);
    ADD_FAILURE() << "there is no such partition for its snapshots";
  } catch (const BrokerError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("has only 2 partitions"), HasSubstr("Repeat turnstile limits divide"),
                                    Not(HasSubstr("delete"))));
  }
  EXPECT_EQ(json("limits", "divide", "3")["was_divided"], true);
  EXPECT_TRUE(kafka::open_token_log_part(settings(), {.name = topic_}, 2, nullptr));
}

/// The new topic has one partition, and the snapshots lie in four.
TEST_F(LimitsDivide, the_limits_of_a_divided_log_that_was_deleted_are_reported) {
  { const auto one = join("one"); }
  EXPECT_EQ(cli_.run("limits", "divide", "4").code, 0);
  tokens::State home;
  home.part = tokens::part_of("psp", 4);
  home.parts = 4;
  home.division = 1;
  home.last = 64;
  home.limiters["psp"].set = 0;
  {
    const auto log = kafka::open_token_log_part(settings(), {.name = topic_}, home.part, nullptr);
    log->save(home.last, tokens::save(home));
    log->flush(10s);
    EXPECT_EQ(log->saved(), home.last);
  }
  kafka::delete_topic(settings(), topic_);
  const CapturedLog lines;
  const auto logger = std::make_shared<spdlog::logger>("new", lines.sink());
  std::shared_ptr<TokenDomain> domain;
  EXPECT_TRUE(eventually([&] {
    try {
      domain = kafka::open_limiters(settings(), {.name = topic_}, {.client = "new"}, logger);
    } catch (const BrokerError&) {  // the topic is still being deleted
    }
    return domain != nullptr;
  }));
  EXPECT_THAT(lines.str(), AllOf(HasSubstr("divided into 4 parts"), HasSubstr(detail::commands_of_operators(home))));
}

TEST_F(LimitsDivide, two_operators_at_once_divide_it_once) {
  for (int round = 0; round < 4; ++round) {
    const std::string topic = std::to_string(round) + topic_;
    (void)kafka::open_token_log(settings(), {.name = topic}, nullptr);
    const std::vector<std::string> command{"limits", "divide", "4", "--topic", topic};
    CliProcess first(command, cli_.environment(), cli_.folder().path());
    CliProcess second(command, cli_.environment(), cli_.folder().path());
    for (CliProcess* process : {&first, &second}) {
      const auto run = process->wait(60s);
      EXPECT_EQ(run.code, 0) << run.out << run.err;
    }
  }
}

TEST_F(LimitsDivide, numbers_out_of_range_are_refused) {
  for (const char* parts : {"1", "65", "many", "0"}) EXPECT_EQ(cli_.run("limits", "divide", parts).code, 2) << parts;
}

}  // namespace
}  // namespace turnstile::test
