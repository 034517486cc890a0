// The environment over the file.

#include "config/environment.hpp"

#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

#include <map>

#include "tests/support/captured_log.hpp"
#include "turnstile/error.hpp"
#include "turnstile/testing/broker.hpp"
#include "turnstile/turnstile.hpp"

namespace turnstile::detail {
namespace {

using Variables = std::map<std::string, std::string, std::less<>>;

Config parse(std::string_view toml, const Variables& variables) {
  return Config::parse(toml, "turnstile.toml", [&](std::string_view name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  });
}

std::vector<std::string> problems(std::string_view toml, const Variables& variables) {
  try {
    parse(toml, variables);
  } catch (const ConfigError& error) {
    return error.problems;
  }
  return {};
}

TEST(EnvironmentTest, names) {
  EXPECT_EQ(environment_name("postgres.url"), "TURNSTILE_POSTGRES_URL");
  EXPECT_EQ(environment_name("kafka.bootstrap.servers"), "TURNSTILE_KAFKA_BOOTSTRAP_SERVERS");
  EXPECT_EQ(environment_name("topics.eu.payments-v2.retry.attempts"), "TURNSTILE_TOPICS_EU_PAYMENTS_V2_RETRY_ATTEMPTS");
}

TEST(EnvironmentTest, overrides_the_file) {
  const Config config =
      parse("[topics.payments]\nlimit = 1\n[log]\nlevel = 'info'", {{"TURNSTILE_TOPICS_PAYMENTS_LIMIT", "64"},
                                                                    {"TURNSTILE_TOPICS_PAYMENTS_FINGERPRINT", "on"},
                                                                    {"TURNSTILE_TOPICS_PAYMENTS_RETRY_ATTEMPTS", "9"},
                                                                    {"TURNSTILE_LOG_LEVEL", "warn"},
                                                                    {"TURNSTILE_CONSUMER_DRAIN_TIMEOUT", "3s"}});
  EXPECT_EQ(config.topics.at("payments").limit, 64);
  EXPECT_EQ(config.topics.at("payments").fingerprint, true);
  EXPECT_EQ(config.topics.at("payments").retry->attempts, 9);
  EXPECT_EQ(config.log.level, "warn");
  EXPECT_EQ(config.consumer.drain_timeout, std::chrono::seconds(3));
  EXPECT_EQ(config.where("topics.payments.limit"),
            "environment TURNSTILE_TOPICS_PAYMENTS_LIMIT: topics.payments.limit");
}

TEST(EnvironmentTest, gives_what_the_file_leaves_out) {
  const Config config = parse("", {{"TURNSTILE_POSTGRES_URL", "postgresql://db/shop"},
                                   {"TURNSTILE_KAFKA_BOOTSTRAP_SERVERS", "broker:9092"},
                                   {"TURNSTILE_KAFKA_GROUP_ID", "shop"}});
  EXPECT_EQ(config.postgres.value().url.reveal(), "postgresql://db/shop");
  EXPECT_EQ(config.kafka.at("bootstrap.servers"), "broker:9092");
  EXPECT_EQ(config.group(), "shop");
}

TEST(EnvironmentTest, any_kafka_setting_that_the_file_names_can_be_overridden) {
  const Config config = parse("[kafka]\n\"fetch.wait.max.ms\" = 10", {{"TURNSTILE_KAFKA_FETCH_WAIT_MAX_MS", "20"}});
  EXPECT_EQ(config.kafka.at("fetch.wait.max.ms"), "20");
}

TEST(EnvironmentTest, an_empty_variable_counts_as_not_set) {
  EXPECT_EQ(parse("[topics.a]\nlimit = 3", {{"TURNSTILE_TOPICS_A_LIMIT", ""}}).topics.at("a").limit, 3);
}

TEST(EnvironmentTest, what_is_wrong_names_the_variable) {
  EXPECT_EQ(
      problems("[topics.a]", {{"TURNSTILE_TOPICS_A_LIMIT", "many"}}),
      std::vector<std::string>{"environment TURNSTILE_TOPICS_A_LIMIT: topics.a.limit: must be a whole number from 1 "
                               "to 1000000000, not the string 'many'"});
  EXPECT_EQ(problems("[topics.a]", {{"TURNSTILE_TOPICS_A_LIMIT", "0"}}).at(0).substr(0, 65),
            "environment TURNSTILE_TOPICS_A_LIMIT: topics.a.limit: is 0, so no");
  EXPECT_EQ(
      problems("[topics.a]", {{"TURNSTILE_TOPICS_A_FINGERPRINT", "maybe"}}).at(0),
      "environment TURNSTILE_TOPICS_A_FINGERPRINT: topics.a.fingerprint: must be true or false, not the string 'maybe'");
  EXPECT_EQ(problems("[topics.a]", {{"TURNSTILE_TOPICS_A_MODE", "transactional"}}).at(0).substr(0, 69),
            "environment TURNSTILE_TOPICS_A_MODE: topics.a.mode: transactional nee");
}

TEST(EnvironmentTest, a_wrong_url_is_not_quoted) {
  const auto found = problems("", {{"TURNSTILE_POSTGRES_URL", "mysql://app:hunter2@db/shop"}});
  ASSERT_EQ(found.size(), 1U);
  EXPECT_TRUE(found[0].starts_with("environment TURNSTILE_POSTGRES_URL: postgres.url: has a scheme other")) << found[0];
  EXPECT_EQ(found[0].find("hunter2"), std::string::npos);
}

TEST(EnvironmentTest, a_variable_that_could_mean_two_topics_is_refused) {
  const std::string_view file = "[topics.\"pay.v2\"]\n[topics.pay-v2]\n";
  EXPECT_EQ(problems(file, {{"TURNSTILE_TOPICS_PAY_V2_LIMIT", "3"}}),
            std::vector<std::string>{
                "environment TURNSTILE_TOPICS_PAY_V2_LIMIT: could mean topic 'pay-v2' or topic 'pay.v2': their "
                "variables have the same names; set the value in the file"});
  EXPECT_EQ(problems(file, {}), std::vector<std::string>{});
}

/// As Config::load() does it.
Config load(std::string_view toml, const Variables& variables) {
  Config config = parse(toml, variables);
  config.environment = [variables](std::string_view name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
  return config;
}

/// What a program with these topics in its code makes of the configuration: the reasons why it does not start, or nothing.
struct Started {
  std::vector<std::string> problems;
  std::string log;
};

Started start(const Config& config, const std::vector<std::pair<std::string, std::int64_t>>& topics) {
  test::CapturedLog log;
  const auto broker = std::make_shared<testing::MemoryBroker>();
  Consumer app{config, {.broker = broker}};
  app.handle_signals(false).logger(std::make_shared<spdlog::logger>("t", log.sink()));
  for (const auto& [name, n] : topics) {
    broker->create_topic(name, 1);
    app.topic(name, Pipeline([](const Message&, Context&) {}) | limit(n) | handler_timeout(std::chrono::seconds(1)));
  }
  app.stop();
  try {
    app.run();
  } catch (const ConfigError& error) {
    return {error.problems, log.str()};
  }
  return {{}, log.str()};
}

TEST(EnvironmentTest, applies_to_topics_that_only_the_program_names) {
  // A limit that no setting may have shows that the variable is read.
  const Config config = load("", {{"TURNSTILE_TOPICS_CHARGES_LIMIT", "0"}});
  const auto started = start(config, {{"charges", 5}});
  ASSERT_EQ(started.problems.size(), 1U);
  EXPECT_TRUE(started.problems[0].starts_with("environment TURNSTILE_TOPICS_CHARGES_LIMIT: topics.charges.limit: is 0"))
      << started.problems[0];

  Config read = load("", {{"TURNSTILE_TOPICS_CHARGES_LIMIT", "3"}});
  EXPECT_TRUE(read_environment(std::set<std::string>{"charges", "refunds"}, read).empty());
  EXPECT_EQ(read.topics.at("charges").limit, 3);
  EXPECT_FALSE(read.topics.contains("refunds"));
  EXPECT_EQ(read.where("topics.charges.limit"), "environment TURNSTILE_TOPICS_CHARGES_LIMIT: topics.charges.limit");
  EXPECT_TRUE(start(load("", {{"TURNSTILE_TOPICS_CHARGES_LIMIT", "3"}}), {{"charges", 5}}).problems.empty());
}

TEST(EnvironmentTest, a_variable_that_could_mean_two_topics_of_the_program_is_refused) {
  const Variables variables{{"TURNSTILE_TOPICS_PAY_V2_LIMIT", "3"}};
  EXPECT_EQ(start(load("", variables), {{"pay.v2", 5}, {"pay-v2", 5}}).problems,
            std::vector<std::string>{
                "environment TURNSTILE_TOPICS_PAY_V2_LIMIT: could mean topic 'pay-v2' or topic 'pay.v2': their "
                "variables have the same names; set the value in the file"});
  EXPECT_EQ(start(load("[topics.\"pay.v2\"]", variables), {{"pay.v2", 5}, {"pay-v2", 5}}).problems.size(), 1U);
}

TEST(EnvironmentTest, a_variable_that_nothing_reads_is_a_warning_with_what_was_probably_meant) {
  Config config = load("[topics.charges]\n[kafka]\n\"fetch.wait.max.ms\" = 10", {});
  config.variables = {"TURNSTILE_POSTGRES_URL",
                      "TURNSTILE_TOPICS_CHARGES_LIMIT",
                      "TURNSTILE_TOPICS_REFUNDS_ORDER",
                      "TURNSTILE_KAFKA_GROUP_ID",
                      "TURNSTILE_KAFKA_FETCH_WAIT_MAX_MS",
                      "TURNSTILE_TEST_KAFKA",
                      "TURNSTILE_TOPICS_CHRAGES_LIMIT",
                      "TURNSTILE_KAFKA_QUEUED_MAX_MESSAGES_KBYTES",
                      "TURNSTILE_DATABASE_SERVICE_PORT_5432_TCP_ADDR"};
  const auto found = unread_variables({"refunds"}, config);
  EXPECT_EQ(found, (std::vector<std::string>{
                       "environment TURNSTILE_DATABASE_SERVICE_PORT_5432_TCP_ADDR: Turnstile does not read this "
                       "variable, so it has no effect; unset it, or correct its name: TURNSTILE_SECTION_KEY, such as "
                       "TURNSTILE_POSTGRES_URL",
                       "environment TURNSTILE_KAFKA_QUEUED_MAX_MESSAGES_KBYTES: Turnstile does not read this "
                       "variable, so it has no effect; add the librdkafka setting to [kafka] in the file; then this "
                       "variable overrides it",
                       "environment TURNSTILE_TOPICS_CHRAGES_LIMIT: Turnstile does not read this variable, so "
                       "it has no effect; did you mean TURNSTILE_TOPICS_CHARGES_LIMIT?"}));
  config.topics.clear();
  EXPECT_NE(start(config, {{"charges", 5}, {"refunds", 5}}).log.find("did you mean TURNSTILE_TOPICS_CHARGES_LIMIT?"),
            std::string::npos);
}

}  // namespace
}  // namespace turnstile::detail
