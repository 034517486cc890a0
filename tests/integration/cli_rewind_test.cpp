// turnstile rewind, on a real PostgreSQL and a real Kafka, with a real consumer before and after it.

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "tests/integration/page_commands.hpp"
#include "tests/support/cli.hpp"
#include "tests/support/world.hpp"

namespace turnstile::test {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

class CliRewind : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    TURNSTILE_NEEDS_SERVERS();
    world_ = std::make_unique<World>(WorldOptions{.partitions = 2, .session_timeout_ms = 6'000});
    configure(GetParam());
  }

  void configure(const std::string& mode) {
    mode_ = mode;
    toml_ = world_->toml("mode = \"" + mode + "\"\n");
    cli_.folder().write("turnstile.toml", toml_);
  }

  Process consumer() {
    return world_->consumer(toml_, mode_ == "leased" ? std::map<std::string, std::string>{{"ELSEWHERE", "1"}}
                                                     : std::map<std::string, std::string>{});
  }

  /// A consumer handles everything, and leaves the group.
  void handle_all(std::int64_t effects) {
    Process running = consumer();
    EXPECT_TRUE(eventually([&] { return world_->effects().rows >= effects && world_->caught_up(); }, 90s))
        << world_->effects().rows << " of " << effects << "\n"
        << world_->output();
    running.signal(SIGTERM);
    EXPECT_EQ(running.wait(30s), 0);
  }

  Finished rewind(std::vector<std::string> more) {
    std::vector<std::string> verb{"rewind", world_->topic()};
    verb.insert(verb.end(), more.begin(), more.end());
    return cli_.run_all(verb);
  }

  [[nodiscard]] std::string now() const {
    return world_->query("SELECT to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.MS')");
  }

  void run_sql(const std::string& sql) { static_cast<void>(world_->query(sql)); }

  std::unique_ptr<World> world_;
  std::string mode_, toml_;
  Cli cli_;
};

class CliRewindMode : public CliRewind {};

TEST_P(CliRewindMode, what_took_effect_does_not_happen_again) {
  const auto first = world_->publish(60, "a");
  const bool by_offset = mode_ == "by_offset";
  handle_all(by_offset ? first : 60);
  const std::string time = now();
  const auto second = world_->publish(40, "b");
  handle_all(by_offset ? first + second : 100);
  const auto effects = world_->effects().rows;

  const auto dry = Json::parse(rewind({"--to", time, "--dry-run", "--json"}).out, nullptr, false);
  EXPECT_EQ(dry["records"], second) << dry.dump();
  EXPECT_EQ(dry["duplicates"], second);
  EXPECT_EQ(dry["run"], 0);
  EXPECT_EQ(dry["changed"], false);
  EXPECT_TRUE(world_->caught_up());

  const auto moved = rewind({"--to", time, "--yes", "--json"});
  EXPECT_EQ(moved.code, 0) << moved.err;
  const auto report = Json::parse(moved.out, nullptr, false);
  EXPECT_EQ(report["changed"], true);
  EXPECT_FALSE(world_->caught_up());
  for (std::int32_t p = 0; p < 2; ++p)
    EXPECT_EQ(world_->committed(p), report["partitions"][static_cast<std::size_t>(p)]["new_offset"]);
  handle_all(effects);
  EXPECT_EQ(world_->effects().rows, effects) << "an effect happened twice";
  EXPECT_EQ(rewind({"--to", "2h ago", "--yes"}).code, 0);
  handle_all(effects);
  EXPECT_EQ(world_->effects().rows, effects) << "an effect happened twice";
}

INSTANTIATE_TEST_SUITE_P(Each, CliRewindMode, ::testing::Values("transactional", "leased", "by_offset"),
                         [](const auto& mode) { return std::string(mode.param); });

class CliRewindIds : public CliRewind {};

TEST_P(CliRewindIds, a_message_that_was_never_handled_takes_effect) {
  world_->publish(20);
  handle_all(20);
  // As if the handler had not been there for it.
  run_sql("WITH i AS (DELETE FROM inbox WHERE id = '" + MessageId::from("m5").text() +
          "' RETURNING 1), e AS (DELETE FROM effect WHERE id = 'm5' RETURNING 1) SELECT count(*) FROM i, e");
  ASSERT_EQ(world_->effects().rows, 19);
  const auto shown = rewind({"--to", "1h ago"});
  EXPECT_EQ(shown.code, 2);
  EXPECT_THAT(shown.out,
              AllOf(HasSubstr("21 are duplicates"), HasSubstr("1 run: nothing shows that they took effect")));
  EXPECT_THAT(shown.err, HasSubstr("nothing was changed; to move the group, run it again with --yes"));
  EXPECT_EQ(rewind({"--to", "1h ago", "--yes"}).code, 0);
  handle_all(20);
  EXPECT_EQ(world_->effects().rows, 20);
  EXPECT_EQ(world_->effects().distinct, 20);
}

INSTANTIATE_TEST_SUITE_P(Each, CliRewindIds, ::testing::Values("transactional", "leased"),
                         [](const auto& mode) { return std::string(mode.param); });

class CliRewindStored : public CliRewind {};

TEST_P(CliRewindStored, a_message_that_waits_for_a_later_attempt_is_not_counted_as_done) {
  toml_ =
      world_->toml("mode = \"transactional\"\nretry = { durable = \"wait\", attempts = 9, backoff = \"1h..1h\" }\n");
  cli_.folder().write("turnstile.toml", toml_);
  world_->publish("done", "p", "a");
  world_->publish("waits", "throw", "b");
  world_->publish("dropped", "throw", "c");
  {
    Process running = consumer();
    ASSERT_TRUE(
        eventually([&] { return world_->query("SELECT count(*) FROM retry") == "2" && world_->caught_up(); }, 90s))
        << world_->output();
    running.signal(SIGTERM);
    EXPECT_EQ(running.wait(30s), 0);
  }
  EXPECT_EQ(cli_.run("retries", "drop", "--key", "c").code, 0);
  const auto seen = cli_.run("inbox", "inspect", "waits");
  EXPECT_EQ(seen.code, 1);
  EXPECT_THAT(seen.out, AllOf(HasSubstr("stored for attempt 2 by " + world_->topic()), HasSubstr("told to throw"),
                              Not(HasSubstr("not seen"))));
  EXPECT_EQ(Json::parse(cli_.run("inbox", "inspect", "waits", "--json").out)["stored"][0]["attempts"], 1);

  const auto dry = rewind({"--to", "1h ago", "--dry-run"});
  EXPECT_THAT(dry.out, AllOf(HasSubstr("1 are duplicates"),
                             HasSubstr("2 are stored for a later attempt, or were dropped"), Not(HasSubstr(" run: "))));
  EXPECT_EQ(rewind({"--to", "1h ago", "--yes"}).code, 0);
  handle_all(1);
  EXPECT_EQ(world_->effects().rows, 1);
}

INSTANTIATE_TEST_SUITE_P(Each, CliRewindStored, ::testing::Values("transactional"),
                         [](const auto& mode) { return std::string(mode.param); });

class CliRewindNewMode : public CliRewind {};

TEST_P(CliRewindNewMode, does_not_go_back_to_messages_without_ids) {
  const auto records = world_->publish(20);
  handle_all(records);
  configure("transactional");
  const auto refused = rewind({"--to", "1h ago", "--yes"});
  EXPECT_EQ(refused.code, 4);
  EXPECT_THAT(refused.err, HasSubstr("in mode by_offset or numbered, which keeps no ids"));
  const auto audit = cli_.run("audit", "--topic", world_->topic(), "--no-limits");
  EXPECT_EQ(audit.code, 0) << "they took effect: " << audit.out << audit.err;
  const std::string time = now();
  world_->publish("later", "p", "k");
  handle_all(records + 1);
  const auto later = rewind({"--to", time, "--dry-run"});
  EXPECT_EQ(later.code, 0) << later.err;
  EXPECT_THAT(later.out, HasSubstr("1 are duplicates"));
}

INSTANTIATE_TEST_SUITE_P(Each, CliRewindNewMode, ::testing::Values("by_offset"),
                         [](const auto& mode) { return std::string(mode.param); });

class CliRewindRefusal : public CliRewind {};

TEST_P(CliRewindRefusal, refuses_members_the_horizon_and_modes_without_ids) {
  world_->publish(20);
  {
    Process running = consumer();
    ASSERT_TRUE(eventually([&] { return world_->effects().rows == 20 && world_->caught_up(); }, 90s))
        << world_->output();
    const auto members = rewind({"--to", "1h ago", "--yes"});
    EXPECT_EQ(members.code, 4);
    EXPECT_THAT(members.err, AllOf(HasSubstr("has 1 member: "), HasSubstr("Stop them all")));
    const auto shown = rewind({"--to", "1h ago", "--dry-run"});
    EXPECT_EQ(shown.code, 0) << shown.err;
    EXPECT_THAT(shown.out, HasSubstr("would go back"));
    EXPECT_THAT(shown.err, HasSubstr("has 1 member, so these are the numbers of this moment"));
    running.signal(SIGTERM);
    EXPECT_EQ(running.wait(30s), 0);
  }
  EXPECT_TRUE(world_->caught_up());
  // Without a declaration, ids are kept for 8 days.
  run_sql("DELETE FROM retention");
  const auto horizon = rewind({"--to", "9d ago", "--yes"});
  EXPECT_EQ(horizon.code, 4);
  EXPECT_THAT(horizon.err, AllOf(HasSubstr("reach back to"), HasSubstr("The earliest time is --to \"")));
  run_sql(
      "INSERT INTO horizon (handler, forgotten_before) VALUES (1, clock_timestamp()) "
      "ON CONFLICT (handler) DO UPDATE SET forgotten_before = excluded.forgotten_before");
  EXPECT_EQ(rewind({"--to", "1m ago", "--yes"}).code, 4);
  run_sql("DELETE FROM horizon");
  EXPECT_TRUE(world_->caught_up()) << "a refused rewind has moved the group";

  const std::string reader = world_->schema() + "_reader";
  run_sql("CREATE ROLE " + reader + " LOGIN PASSWORD 'app'; GRANT pg_read_all_data TO " + reader);
  const std::string url = with_parameter(with_parameter(*postgres_url(), "user", reader), "password", "app");
  EXPECT_EQ(rewind({"--to", "1h ago", "--dry-run", "--postgres", url}).code, 0);
  const auto not_owner = rewind({"--to", "1h ago", "--yes", "--postgres", url});
  EXPECT_EQ(not_owner.code, 3) << not_owner.out;
  EXPECT_THAT(not_owner.err,
              AllOf(HasSubstr("only the owner of the schema"), HasSubstr("code=store_permission_denied")));
  run_sql("DROP ROLE " + reader);
  EXPECT_TRUE(world_->caught_up()) << "a role that may only read has moved the group";

  EXPECT_THAT(rewind({"--to", "2200-01-01 00:00"}).err, HasSubstr("lies in the future"));
  EXPECT_EQ(rewind({"--to", "1041"}).code, 2);
  EXPECT_EQ(rewind({"--to", "yesterday"}).code, 2);
  EXPECT_EQ(rewind({"--to", "1h ago", "--handler", "nobody"}).code, 2);
  const auto other = rewind({"--to", "1h ago", "--group", "nobody"});
  EXPECT_EQ(other.code, 4);
  EXPECT_THAT(other.err, HasSubstr("the database knows no partition of it for this group"));
  EXPECT_THAT(rewind({"--to", now(), "--yes"}).out, HasSubstr("nothing to do"));
  EXPECT_GE(run_page(cli_, "operations/rewind.md", world_->topic()), 3);
  EXPECT_FALSE(world_->caught_up()) << "the page moves the group";

  configure("at_least_once");
  const auto plain = rewind({"--to", "1h ago", "--yes"});
  EXPECT_EQ(plain.code, 4);
  EXPECT_THAT(plain.err, HasSubstr("its mode is at_least_once"));
}

INSTANTIATE_TEST_SUITE_P(Each, CliRewindRefusal, ::testing::Values("transactional"),
                         [](const auto& mode) { return std::string(mode.param); });

}  // namespace
}  // namespace turnstile::test
