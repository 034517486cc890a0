#pragma once
// What each setting is, which value is in effect, and where that value comes from.

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "turnstile/config.hpp"

namespace turnstile {

/// One setting, its value in effect, and where that comes from.
struct ExplainedSetting {
  std::string key;      ///< "topics.payments.limit"
  std::string value;    ///< as TOML; a secret is "***". Empty: it is not set, and `instead` says what is in effect
  std::string instead;  ///< empty where there is a value
  std::string source;   ///< "default", "code", "turnstile.toml:12", "environment TURNSTILE_TOPICS_PAYMENTS_LIMIT"
  std::string what;     ///< a sentence or two about the setting
};

/// What the pipelines of a program have set, by topic.
using SettingsInCode = std::map<std::string, TopicSettings>;

/// All settings, in the order of the reference page; those of [kafka] that are set. Without `in_code` nobody knows what the program
/// sets: the source of such a default then says so.
std::vector<ExplainedSetting> explain(const Config& config, const SettingsInCode* in_code = nullptr);

/// The one of that name ("consumer.window"), or those of a section ("topics.payments", "consumer"). Throws ConfigError for a
/// key that does not exist, with the nearest one that does.
std::vector<ExplainedSetting> explain(const Config& config, std::string_view key,
                                      const SettingsInCode* in_code = nullptr);

/// A configuration file with all settings, their defaults and what they are for; Config::parse() accepts it.
std::string example_config();

/// The tables of docs/reference/configuration.md.
std::string settings_reference();

}  // namespace turnstile
