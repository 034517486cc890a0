// turnstile config: the values in effect, where each of them comes from, and a file that contains all of them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/cli.hpp"
#include "turnstile/config.hpp"

namespace turnstile::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(CliConfig, explains_a_setting_of_the_file_of_the_environment_and_by_default) {
  Cli cli;
  cli.folder().write("turnstile.toml", "[topics.payments]\nlimit = 3\n");
  const auto file = cli.run("config", "explain", "topics.payments.limit");
  EXPECT_EQ(file.code, 0) << file.err;
  EXPECT_THAT(file.out, HasSubstr("topics.payments.limit = 3\n  turnstile.toml:2\n"));
  cli.environment()["TURNSTILE_TOPICS_PAYMENTS_LIMIT"] = "8";
  const auto environment = cli.run("config", "explain", "topics.payments.limit");
  EXPECT_THAT(environment.out, HasSubstr("= 8\n  environment TURNSTILE_TOPICS_PAYMENTS_LIMIT\n"));
  const auto fallback = cli.run("config", "explain", "consumer.window");
  EXPECT_THAT(fallback.out, HasSubstr("consumer.window = 10000\n  default\n"));
  const auto unset = cli.run("config", "explain", "topics.payments.handler");
  EXPECT_THAT(unset.out, HasSubstr("not set: the topic's name\n  default, unless the program sets it\n"));
}

TEST(CliConfig, names_a_key_that_does_not_exist_and_the_nearest_that_does) {
  const auto wrong = Cli().run("config", "explain", "consumer.windw");
  EXPECT_EQ(wrong.code, 2);
  EXPECT_THAT(wrong.err, AllOf(HasSubstr("consumer.windw"), HasSubstr("did you mean 'consumer.window'?")));
}

TEST(CliConfig, names_a_misspelt_key_of_librdkafka_with_its_line) {
  Cli cli;
  cli.folder().write("turnstile.toml", "[kafka]\n\"fetch.min.byte\" = \"1\"\n");
  const auto wrong = cli.run("config", "explain");
  EXPECT_EQ(wrong.code, 2);
  EXPECT_THAT(wrong.err, AllOf(HasSubstr("turnstile.toml:2"), HasSubstr("fetch.min.byte")));
}

TEST(CliConfig, shows_all_without_a_secret) {
  Cli cli;
  cli.folder().write("turnstile.toml", "[postgres]\nurl = \"postgresql://me:hunter2@localhost/shop\"\n");
  for (const auto& arguments : {std::vector<std::string>{"config", "explain"}, {"--json", "config", "explain"}}) {
    const auto all = cli.run_all(arguments);
    EXPECT_EQ(all.code, 0) << all.err;
    EXPECT_THAT(all.out, AllOf(HasSubstr("postgres.url"), HasSubstr("***"), HasSubstr("limits.lease")));
    EXPECT_THAT(all.out, Not(HasSubstr("hunter2")));
  }
}

TEST(CliConfig, gives_an_example_that_can_be_used) {
  const auto example = Cli().run("config", "example");
  EXPECT_EQ(example.code, 0) << example.err;
  EXPECT_NO_THROW(Config::parse(example.out, "example.toml"));
}

}  // namespace
}  // namespace turnstile::test
