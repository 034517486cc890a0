#pragma once
// Explains each setting: its meaning, the value in effect, and the origin of that value.

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "turnstile/config.hpp"

namespace turnstile {

/// A setting, its value in effect, and the origin of that value.
struct ExplainedSetting {
  std::string key;      ///< "topics.payments.limit"
  std::string value;    ///< as TOML; a secret is "***". Empty: the setting has no value, see `instead`
  std::string instead;  ///< the effective behaviour if `value` is empty; otherwise empty
  std::string source;   ///< "default", "code", "turnstile.toml:12", "environment TURNSTILE_TOPICS_PAYMENTS_LIMIT"
  std::string what;     ///< one or two sentences about the setting
};

/// The settings that the pipelines of a program make, by topic.
using SettingsInCode = std::map<std::string, TopicSettings>;

/// All settings, in the order of the reference page. Of [kafka], only those that are set. Without `in_code` the
/// settings in the program's code are unknown, and the source of such a default tells so.
std::vector<ExplainedSetting> explain(const Config& config, const SettingsInCode* in_code = nullptr);

/// The setting of that name ("consumer.window"), or the settings of a section ("topics.payments", "consumer"). Throws
/// ConfigError for an unknown key, and names the nearest known key.
std::vector<ExplainedSetting> explain(const Config& config, std::string_view key,
                                      const SettingsInCode* in_code = nullptr);

/// A configuration file with all settings, their defaults and their meaning. Config::parse() accepts it.
std::string example_config();

/// The tables of docs/reference/configuration.md.
std::string settings_reference();

}  // namespace turnstile
