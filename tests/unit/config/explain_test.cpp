#include "turnstile/explain.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>

#include "tests/support/read_file.hpp"
#include "turnstile/decorators.hpp"
#include "turnstile/error.hpp"
#include "turnstile/testing/broker.hpp"
#include "turnstile/turnstile.hpp"

namespace turnstile {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const char* const kFile = R"([kafka]
"bootstrap.servers" = "localhost:9092"
"sasl.password" = "hunter2"
[postgres]
url = "postgresql://me:hunter2@localhost/shop"
[consumer]
window = 7
[topics.payments]
limit = 3
retry = { attempts = 9 }
)";

std::optional<std::string> environment(std::string_view name) {
  if (name == "TURNSTILE_TOPICS_PAYMENTS_BATCH") return "40";
  return std::nullopt;
}

Config config() { return Config::parse(kFile, "turnstile.toml", environment); }

ExplainedSetting only(const std::vector<ExplainedSetting>& settings) {
  EXPECT_EQ(settings.size(), 1U);
  return settings.empty() ? ExplainedSetting{} : settings.front();
}

TEST(Explain, says_which_value_is_in_effect_and_where_it_comes_from) {
  const auto value = [](const std::string& key) {
    const auto found = only(explain(config(), key));
    return found.value + " | " + found.source;
  };
  EXPECT_EQ(value("consumer.window"), "7 | turnstile.toml:7");
  EXPECT_EQ(value("consumer.commit_interval"), "\"1s\" | default");
  EXPECT_EQ(value("topics.payments.limit"), "3 | turnstile.toml:9");
  EXPECT_EQ(value("topics.payments.batch"), "40 | environment TURNSTILE_TOPICS_PAYMENTS_BATCH");
  EXPECT_EQ(value("topics.payments.retry.attempts"), "9 | turnstile.toml:10");
  EXPECT_EQ(value("topics.payments.retry.backoff"), "\"100ms..30s\" | default, unless the program sets it");
}

TEST(Explain, says_what_is_in_effect_where_nothing_is_set) {
  const auto found = only(explain(config(), "topics.payments.handler"));
  EXPECT_EQ(found.value, "");
  EXPECT_EQ(found.instead, "the topic's name");
}

TEST(Explain, knows_what_the_code_sets) {
  const SettingsInCode code{{"payments", ([](const Message&) {} | transactional() | batch(20) | limit(8)).settings},
                            {"refunds", ([](const Message&) {} | leased()).settings}};
  EXPECT_EQ(only(explain(config(), "topics.payments.mode", &code)).source, "code");
  EXPECT_EQ(only(explain(config(), "topics.payments.limit", &code)).source, "turnstile.toml:9") << "the file wins";
  EXPECT_EQ(only(explain(config(), "topics.refunds.mode", &code)).value, "\"leased\"");
  EXPECT_EQ(only(explain(config(), "topics.refunds.batch", &code)).source, "default");
}

TEST(Explain, shows_no_secret) {
  for (const auto& setting : explain(config())) EXPECT_THAT(setting.value, ::testing::Not(HasSubstr("hunter2")));
  EXPECT_EQ(only(explain(config(), "postgres.url")).value, "\"***\"");
  EXPECT_EQ(only(explain(config(), "kafka.sasl.password")).value, "\"***\"");
}

TEST(Explain, refuses_a_key_that_does_not_exist_and_names_the_nearest) {
  const auto why = [](const std::string& key) {
    try {
      explain(config(), key);
    } catch (const ConfigError& error) {
      return error.problems.at(0);
    }
    return std::string("found");
  };
  EXPECT_THAT(why("consumer.windw"),
              AllOf(HasSubstr("'consumer.windw'"), HasSubstr("did you mean 'consumer.window'?")));
  EXPECT_THAT(why("topics.payments.limt"), HasSubstr("did you mean 'topics.payments.limit'?"));
  EXPECT_THAT(why("topics.elsewhere.limt"), HasSubstr("did you mean 'topics.elsewhere.limit'?"));
  EXPECT_THAT(why("nonsense"), HasSubstr("topics.payments.limit"));
  EXPECT_THAT(why(""), HasSubstr("there is no setting"));
}

TEST(Explain, knows_a_topic_that_only_the_program_names) {
  EXPECT_EQ(only(explain(config(), "topics.pay.v2.limit")).instead, "no limit but the workers");
}

TEST(Explain, gives_a_section) {
  EXPECT_EQ(explain(config(), "log").size(), 2U);
  EXPECT_GT(explain(config(), "topics.payments").size(), 20U);
}

TEST(Explain, the_example_is_a_configuration_with_all_defaults) {
  const std::string text = example_config();
  EXPECT_NO_THROW(Config::parse(text, "example.toml"));
  // With all that it shows taken in, which has to be accepted as well.
  std::string all;
  std::istringstream lines{text};
  for (std::string line; std::getline(lines, line);) {
    const bool is_setting = line.starts_with("#") && !line.starts_with("# ") && !line.ends_with("=");
    if (line.starts_with("#request_window")) continue;  // of mode numbered alone, and this is mode leased
    all += (is_setting ? line.substr(1) : line) + "\n";
  }
  const auto commented = all.find("[postgres]\n");
  ASSERT_NE(commented, std::string::npos);
  all.insert(commented + 11, "url = \"postgresql://me@localhost/shop\"\n");
  const std::string_view weakest = "mode = \"at_least_once\"";
  const auto mode = all.find(weakest);  // in which the settings of mode leased are refused
  ASSERT_NE(mode, std::string::npos);
  all.replace(mode, weakest.size(), "mode = \"leased\"");
  try {
    const Config parsed = Config::parse(all, "example.toml");
    EXPECT_EQ(parsed.consumer.window, ConsumerSettings{}.window);
    EXPECT_EQ(parsed.topics.at("NAME").batch, 500);
  } catch (const ConfigError& error) {
    for (const auto& problem : error.problems) ADD_FAILURE() << problem;
  }
}

TEST(Explain, the_reference_page_has_what_the_table_has) {
  const std::string page =
      test::read_file(std::filesystem::path(TURNSTILE_SOURCE_DIR) / "docs/reference/configuration.md");
  const auto tables = settings_reference();
  EXPECT_TRUE(page.ends_with(tables))
      << "docs/reference/configuration.md differs; replace its end by: turnstile config example --markdown";
}

TEST(Explain, a_consumer_explains_its_own_settings) {
  Backends backends;
  backends.broker = std::make_shared<testing::MemoryBroker>("shop");
  Consumer consumer(config(), std::move(backends));
  consumer.topic("payments", [](const Message&) {} | batch(20) | ordered_by(Order::key));
  EXPECT_EQ(only(consumer.explain("topics.payments.order")).source, "code");
  EXPECT_GT(consumer.explain().size(), 40U);
  EXPECT_THROW(static_cast<void>(consumer.explain("consumer.windw")), ConfigError);
}

}  // namespace
}  // namespace turnstile
