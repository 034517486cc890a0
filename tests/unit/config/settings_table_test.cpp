// The table of settings: each default can be read, written and read again, and is the one that is in effect.

#include "config/settings_table.hpp"

#include <gtest/gtest.h>

#include <set>

#include "config/topic_plan.hpp"
#include "tests/support/read_file.hpp"
#include "turnstile/explain.hpp"

namespace turnstile::detail {
namespace {

using namespace std::chrono_literals;

TEST(SettingsTable, each_default_of_a_topic_is_written_as_it_is_read) {
  for (const auto& setting : topic_keys()) {
    EXPECT_NE(setting.fallback.empty(), setting.otherwise.empty())
        << setting.name << ": a default, or what is in effect";
    if (setting.fallback.empty()) continue;
    TopicSettings settings;
    const auto why = setting.read(toml_value(setting.fallback), settings);
    ASSERT_FALSE(why) << setting.name << " = " << setting.fallback << ": " << *why;
    EXPECT_EQ(setting.write(settings), setting.fallback) << setting.name;
  }
}

template <class Section>
void can_be_printed(const std::string& section, std::span<const Setting<Section>> keys) {
  for (const auto& setting : keys) {
    EXPECT_TRUE(!setting.fallback.empty() || !setting.otherwise.empty())
        << section << "." << setting.name << ": its default cannot be printed";
    EXPECT_FALSE(setting.what.empty()) << section << "." << setting.name;
    EXPECT_TRUE(setting.what.ends_with('.') || setting.what.ends_with(").")) << section << "." << setting.name;
    EXPECT_FALSE(setting.form().empty());
  }
}

TEST(SettingsTable, each_default_can_be_printed_and_each_setting_is_explained) {
  can_be_printed("postgres", postgres_keys());
  can_be_printed("consumer", consumer_keys());
  can_be_printed("limits", limits_keys());
  can_be_printed("log", log_keys());
  can_be_printed("admin", admin_keys());
  can_be_printed("tracing", tracing_keys());
  can_be_printed("topics.NAME", topic_keys());
}

template <class Section>
void are_those_of_the_struct(const std::string& section, std::span<const Setting<Section>> keys) {
  for (const auto& setting : keys) {
    const std::string in_struct = setting.write(Section{}).value_or("");
    EXPECT_EQ(setting.fallback, in_struct == "\"\"" ? "" : in_struct) << section << "." << setting.name;
  }
}

TEST(SettingsTable, has_the_defaults_that_code_gets) {
  are_those_of_the_struct("postgres", postgres_keys());
  are_those_of_the_struct("consumer", consumer_keys());
  are_those_of_the_struct("limits", limits_keys());
  are_those_of_the_struct("log", log_keys());
}

template <class Section>
void names_are_unique(std::span<const Setting<Section>> keys) {
  std::set<std::string_view> names;
  for (const auto& setting : keys) EXPECT_TRUE(names.insert(setting.name).second) << setting.name;
}

TEST(SettingsTable, has_each_setting_once) {
  names_are_unique(postgres_keys());
  names_are_unique(consumer_keys());
  names_are_unique(limits_keys());
  names_are_unique(log_keys());
  names_are_unique(topic_keys());
}

TEST(SettingsTable, is_where_a_topic_gets_its_defaults) {
  const TopicPlan plan = plan_topic("t", {});
  EXPECT_EQ(plan.batch, 500U);
  EXPECT_EQ(plan.handler_timeout, 30s);
  EXPECT_EQ(plan.lease, 30s);
  EXPECT_EQ(plan.stop_after_dead, 100);
  EXPECT_EQ(plan.max_response, 65'536U);
  EXPECT_EQ(plan.request_window, 1'024);
  EXPECT_EQ(plan.retry, RetryPolicy{}) << "turnstile/topic_settings.hpp and the table differ";
}

TEST(SettingsTable, a_default_that_is_no_value_is_not_read) {
  TopicSettings settings;
  EXPECT_TRUE(topic_keys().front().read(toml_value("many"), settings));
}

}  // namespace
}  // namespace turnstile::detail
