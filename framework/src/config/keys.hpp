#pragma once
// The settings that exist, section by section: the one list that the file, the environment and the suggestions for
// misspelt keys are read by.

#include <span>
#include <string_view>

#include "config/value.hpp"
#include "turnstile/config.hpp"

namespace turnstile {

/// `name` as in the file, "retry.attempts" for a key in a table of its own.
template <class Section>
struct Setting {
  std::string_view name;
  Problem (*read)(const ConfigValue& value, Section& into);
};

std::span<const Setting<PostgresSettings>> postgres_keys();
std::span<const Setting<ConsumerSettings>> consumer_keys();
std::span<const Setting<LimitsSettings>> limits_keys();
std::span<const Setting<LogSettings>> log_keys();
std::span<const Setting<TopicSettings>> topic_keys();

/// Settings of librdkafka that the environment may set though the file does not name them: how to reach the brokers,
/// and as whom. Any other can be overridden once the file names it.
std::span<const std::string_view> kafka_environment_keys();

}  // namespace turnstile
