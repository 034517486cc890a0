// The messages for a wrong command and for a mistake in the configuration.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>

#include "tests/support/cli.hpp"
#include "tests/support/read_file.hpp"

namespace turnstile::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(CliUsage, help_names_the_verbs_and_the_exit_codes) {
  const auto help = Cli().run("--help");
  EXPECT_EQ(help.code, 0);
  for (const char* verb : {"migrate", "inbox", "dlq", "outbox", "topics", "limits", "permits", "log", "config",
                           "doctor", "dev-broker", "version"})
    EXPECT_THAT(help.out, HasSubstr(verb));
  EXPECT_THAT(help.out, AllOf(HasSubstr("Exit codes:"), HasSubstr("3  Kafka or PostgreSQL cannot be reached")));
}

TEST(CliUsage, the_help_of_every_verb_has_the_exit_codes_once) {
  for (const std::vector<std::string>& verb : std::vector<std::vector<std::string>>{
           {}, {"doctor"}, {"dlq"}, {"dlq", "replay"}, {"limits"}, {"limits", "set"}, {"permits"}, {"log", "tail"}}) {
    auto words = verb;
    words.emplace_back("--help");
    const auto help = Cli().run_all(words).out;
    const auto first = help.find("Exit codes:");
    ASSERT_NE(first, std::string::npos) << help;
    EXPECT_EQ(help.find("Exit codes:", first + 1), std::string::npos) << help;
  }
}

TEST(CliUsage, output_that_cannot_be_written_is_no_success) {
  const TemporaryFolder folder;
  const auto errors = folder.path() / "errors";
  const int status = std::system((TURNSTILE_BIN_DIR "/turnstile version > /dev/full 2> " + errors.string()).c_str());
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 1);
  EXPECT_THAT(
      read_file(errors),
      HasSubstr("the output could not be written, and is incomplete: No space left on device code=unexpected\n"));
}

/// `redirected` is for sh.
int exit_code_of(const std::string& redirected) {
  const int status = std::system((TURNSTILE_BIN_DIR "/turnstile " + redirected).c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/// Each error was an abort.
TEST(CliUsage, the_exit_code_is_right_without_a_stderr) {
  for (const char* lost : {" 2>&-", " 2>/dev/full", " >&- 2>&-"}) {
    EXPECT_EQ(exit_code_of(std::string("nonsense") + lost), 2) << lost;
    EXPECT_EQ(exit_code_of(std::string("topics list --config /nonexistent") + lost), 2) << lost;
    EXPECT_EQ(exit_code_of(std::string("dlq list --postgres postgresql://127.0.0.1:1/x") + lost), 3) << lost;
  }
  EXPECT_EQ(exit_code_of("version >/dev/full 2>/dev/full"), 1);
}

TEST(CliUsage, a_closed_stdout_is_no_error) { EXPECT_EQ(exit_code_of("version <&- >&- 2>&-"), 0); }

TEST(CliUsage, a_number_that_is_out_of_range_is_refused_with_the_range) {
  const auto refused = [](const std::vector<std::string>& words) {
    const auto result = Cli().run_all(words);
    EXPECT_EQ(result.code, 2) << result.out;
    return result.err;
  };
  EXPECT_THAT(refused({"dlq", "replay", "--all", "--from", "0"}),
              HasSubstr("0 is not a whole number from 1 to 9223372036854775807"));
  EXPECT_THAT(refused({"migrate", "up", "--to", "-1"}), HasSubstr("-1 is not a whole number from 0 to 2147483647"));
  for (const char* verb : {"show", "edit", "replay"}) {
    EXPECT_THAT(refused({"dlq", verb, "9223372036854775808"}),
                HasSubstr("9223372036854775808 is not a whole number from 1 to"));
    EXPECT_THAT(refused({"dlq", verb, "1.5"}), HasSubstr("1.5 is not a whole number from 1 to"));
  }
  for (const auto& [noun, verb] :
       {std::pair{"outbox", "drop"}, {"outbox", "retry"}, {"retries", "drop"}, {"retries", "now"}}) {
    EXPECT_THAT(refused({noun, verb, "9223372036854775808"}), HasSubstr("is not a whole number from 1 to"));
    EXPECT_THAT(refused({noun, verb, "0x10"}), HasSubstr("0x10 is not a whole number from 1 to"));
    EXPECT_THAT(refused({noun, verb, "0"}), HasSubstr("0 is not a whole number from 1 to"));
  }
  EXPECT_THAT(refused({"topics", "pause", "pay", "--partition", "0x1"}), HasSubstr("from 0 to 2147483647"));
  EXPECT_THAT(refused({"log", "tail", "-n", "-1"}), HasSubstr("-1 is not a whole number from 0 to 1000000000"));
}

TEST(CliUsage, a_verb_is_required) {
  const auto nothing = Cli().run_all({});
  EXPECT_EQ(nothing.code, 2);
  EXPECT_THAT(nothing.err, HasSubstr("turnstile: A subcommand is required; see: turnstile --help code=usage\n"));
}

TEST(CliUsage, an_unknown_verb_is_named) {
  const auto unknown = Cli().run("mirgate", "up");
  EXPECT_EQ(unknown.code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("there is no verb \"mirgate\"; see: turnstile --help code=usage\n"));
  EXPECT_THAT(Cli().run("inbox", "inspcet", "x").err,
              HasSubstr("there is no verb \"inspcet\"; see: turnstile inbox --help"));
  EXPECT_THAT(Cli().run("audit").err, HasSubstr("--topic is required; see: turnstile audit --help"));
  EXPECT_THAT(Cli().run("--jsn").err, HasSubstr("there is no option \"--jsn\""));
}

TEST(CliUsage, version_says_what_it_runs_with) {
  const auto version = Cli().run("version");
  EXPECT_EQ(version.code, 0);
  EXPECT_THAT(version.out,
              ::testing::MatchesRegex("turnstile [0-9.]+\nlibrdkafka [0-9.]+, libpqxx [0-9.]+, libpq [0-9.]+\n"));
}

TEST(CliUsage, without_a_database_says_how_to_name_one) {
  const auto stats = Cli().run("inbox", "stats");
  EXPECT_EQ(stats.code, 2);
  EXPECT_THAT(stats.err, AllOf(HasSubstr("no database is named"), HasSubstr("[postgres] url"),
                               HasSubstr("TURNSTILE_POSTGRES_URL"), HasSubstr("--postgres URL")));
}

TEST(CliUsage, a_missing_configuration_is_named) {
  const auto stats = Cli().run("--config", "nowhere.toml", "inbox", "stats");
  EXPECT_EQ(stats.code, 2);
  EXPECT_THAT(stats.err, HasSubstr("nowhere.toml: cannot be read: No such file or directory code=config_invalid\n"));
}

TEST(CliUsage, every_mistake_in_the_configuration_is_said_at_once_with_its_line) {
  Cli cli;
  cli.folder().write("turnstile.toml",
                     "[kafka]\n"
                     "\"bootstrap.servers\" = \"localhost:9092\"\n"
                     "[topics.payments]\n"
                     "limt = 64\n"
                     "[topics.emails]\n"
                     "limit = -1\n");
  const auto up = cli.run("migrate", "up");
  EXPECT_EQ(up.code, 2);
  EXPECT_THAT(up.err, AllOf(HasSubstr("turnstile.toml:4"), HasSubstr("limt"), HasSubstr("limit")));
  EXPECT_THAT(up.err, HasSubstr("turnstile.toml:6"));
}

TEST(CliUsage, options_may_stand_behind_the_verb) {
  const auto stats = Cli().run("inbox", "stats", "--postgres", "postgresql://nobody@127.0.0.1:1/app");
  EXPECT_EQ(stats.code, 3);
  EXPECT_THAT(stats.err, HasSubstr("cannot connect to PostgreSQL (127.0.0.1:1, database app, user nobody)"));
}

TEST(CliUsage, options_win_over_the_environment_and_the_file) {
  Cli cli;
  cli.environment()["TURNSTILE_POSTGRES_URL"] = "postgresql://env@127.0.0.1:1/env";
  cli.folder().write("turnstile.toml",
                     "[kafka]\n\"bootstrap.servers\" = \"localhost:9092\"\n"
                     "[postgres]\nurl = \"postgresql://file@127.0.0.1:1/file\"\n");
  EXPECT_THAT(cli.run("inbox", "stats").err, HasSubstr("user env"));
  EXPECT_THAT(cli.run("inbox", "stats", "--postgres", "postgresql://option@127.0.0.1:1/o").err,
              HasSubstr("user option"));
  cli.environment().clear();
  EXPECT_THAT(cli.run("inbox", "stats").err, HasSubstr("user file"));
}

TEST(CliUsage, a_password_is_never_printed) {
  for (const char* url : {"postgresql://me:hunter2@127.0.0.1:1/app", "postgresql://me:hunter2@[::1/app", "hunter2"}) {
    const auto stats = Cli().run("inbox", "stats", "--postgres", url);
    EXPECT_NE(stats.code, 0);
    EXPECT_THAT(stats.err + stats.out, Not(HasSubstr("hunter2"))) << url;
    EXPECT_THAT(stats.err, HasSubstr("turnstile: ")) << url;
  }
}

TEST(CliUsage, a_foreign_schema_name_is_refused) {
  const auto up = Cli().run("migrate", "up", "--postgres", "postgresql://me@127.0.0.1:1/app", "--schema", "a;b");
  EXPECT_EQ(up.code, 2);
  EXPECT_THAT(up.err, HasSubstr("a;b"));
}

}  // namespace
}  // namespace turnstile::test
