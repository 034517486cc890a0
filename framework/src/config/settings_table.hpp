#pragma once
// The table of all settings, which is in settings_table.cpp. Each line has a setting's name, its reader and writer, its
// default, its member, and a description. The file, the environment, merging, defaults, `turnstile config` and
// docs/reference/configuration.md use the table.

#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

#include "config/value.hpp"
#include "turnstile/config.hpp"

namespace turnstile::detail {

template <class Section>
struct Setting {
  /// As in the file. A key in a table of its own has a dot: "retry.attempts".
  std::string_view name;
  /// As TOML. Empty: there is no fixed default, and `otherwise` describes the value in effect.
  std::string_view fallback;
  std::string_view otherwise;
  /// For the user: one or two sentences.
  std::string_view what;
  Problem (*read)(const ConfigValue& value, Section& into);
  /// As TOML. Absent: it is not set.
  std::optional<std::string> (*write)(const Section& from);
  /// Copies the setting from `over` if it is set there.
  void (*take)(Section& into, const Section& over);
  /// The allowed values: "duration from `1s`".
  std::string (*form)();
};

std::span<const Setting<PostgresSettings>> postgres_keys();
std::span<const Setting<ConsumerSettings>> consumer_keys();
std::span<const Setting<LimitsSettings>> limits_keys();
std::span<const Setting<LogSettings>> log_keys();
std::span<const Setting<AdminSettings>> admin_keys();
std::span<const Setting<TracingSettings>> tracing_keys();
std::span<const Setting<TopicSettings>> topic_keys();

/// The defaults of a section, from the table. A setting of a topic that has no fixed default is not set.
template <class Section>
Section defaults(std::span<const Setting<Section>> keys) {
  Section section;
  for (const auto& setting : keys) {
    if (setting.fallback.empty()) continue;
    if (auto why = setting.read(toml_value(setting.fallback), section))
      throw std::logic_error("the default of " + std::string(setting.name) + " in settings_table.cpp, " +
                             std::string(setting.fallback) + ": " + *why);
  }
  return section;
}

/// defaults(topic_keys()), made once.
const TopicSettings& topic_defaults();

/// The word in the file: "transactional", "leased" and so on.
std::string_view word_of(Mode mode);
std::string_view word_of(Order order);

}  // namespace turnstile::detail
