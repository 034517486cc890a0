// The environment over the file.

#include "core/config_environment.hpp"

#include <gtest/gtest.h>

#include <map>

#include "turnstile/error.hpp"

namespace turnstile {
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
      std::vector<std::string>{"environment TURNSTILE_TOPICS_A_LIMIT: topics.a.limit: must be a whole number of at "
                               "least 1, not the text 'many'"});
  EXPECT_EQ(problems("[topics.a]", {{"TURNSTILE_TOPICS_A_LIMIT", "0"}}).at(0).substr(0, 65),
            "environment TURNSTILE_TOPICS_A_LIMIT: topics.a.limit: is 0, which");
  EXPECT_EQ(
      problems("[topics.a]", {{"TURNSTILE_TOPICS_A_FINGERPRINT", "maybe"}}).at(0),
      "environment TURNSTILE_TOPICS_A_FINGERPRINT: topics.a.fingerprint: must be true or false, not the text 'maybe'");
  EXPECT_EQ(problems("[topics.a]", {{"TURNSTILE_TOPICS_A_MODE", "transactional"}}).at(0).substr(0, 69),
            "environment TURNSTILE_TOPICS_A_MODE: topics.a.mode: transactional nee");
}

TEST(EnvironmentTest, a_wrong_url_is_not_quoted) {
  const auto found = problems("", {{"TURNSTILE_POSTGRES_URL", "mysql://app:hunter2@db/shop"}});
  ASSERT_EQ(found.size(), 1U);
  EXPECT_TRUE(found[0].starts_with("environment TURNSTILE_POSTGRES_URL: postgres.url: has another scheme")) << found[0];
  EXPECT_EQ(found[0].find("hunter2"), std::string::npos);
}

TEST(EnvironmentTest, a_variable_that_could_mean_two_topics_is_refused) {
  const std::string_view file = "[topics.\"pay.v2\"]\n[topics.pay-v2]\n";
  EXPECT_EQ(
      problems(file, {{"TURNSTILE_TOPICS_PAY_V2_LIMIT", "3"}}),
      std::vector<std::string>{"environment TURNSTILE_TOPICS_PAY_V2_LIMIT: may mean topic 'pay-v2' or 'pay.v2', whose "
                               "variables have the same names; set it in the file"});
  EXPECT_EQ(problems(file, {}), std::vector<std::string>{});
}

}  // namespace
}  // namespace turnstile
