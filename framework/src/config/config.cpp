#include "turnstile/config.hpp"

#include <algorithm>

#include "config/check.hpp"
#include "config/environment.hpp"
#include "config/file.hpp"
#include "config/settings_table.hpp"
#include "config/suggest.hpp"
#include "config/toml.hpp"
#include "turnstile/error.hpp"

namespace turnstile {
namespace {

constexpr const char* kDefaultGroup = "turnstile";

/// Sorts the problems by line. Problems without a line come last.
std::vector<std::string> in_order(std::vector<detail::ConfigProblem> problems) {
  std::stable_sort(problems.begin(), problems.end(), [](const auto& a, const auto& b) {
    if ((a.line == 0) != (b.line == 0)) return b.line == 0;
    return a.line < b.line;
  });
  std::vector<std::string> texts;
  for (auto& problem : problems) texts.push_back(std::move(problem.text));
  return texts;
}

/// Checks the settings of [kafka]. Each problem has its line and, for a name that does not exist, the nearest name that
/// exists.
void check_kafka(const Config& config, const KafkaCheck& check, std::vector<detail::ConfigProblem>& problems) {
  for (const auto& [key, why, known] : check(config.kafka)) {
    const std::string setting = "kafka." + key;
    const auto line = config.lines.find(setting);
    const auto near = detail::suggest(key, std::vector<std::string_view>(known.begin(), known.end()));
    problems.push_back(
        {line == config.lines.end() ? 0 : line->second,
         config.where(setting) + ": " + why + (near ? "; did you mean '" + std::string(*near) + "'?" : "")});
  }
}

}  // namespace

Config Config::parse(std::string_view toml, std::string_view name, const Environment& environment,
                     const KafkaCheck& kafka_check) {
  auto parsed = detail::parse_toml(toml, name);
  if (auto* problem = std::get_if<std::string>(&parsed)) throw ConfigError({std::move(*problem)});

  Config config;
  config.consumer = detail::defaults(detail::consumer_keys());
  config.limits = detail::defaults(detail::limits_keys());
  config.log = detail::defaults(detail::log_keys());
  config.admin = detail::defaults(detail::admin_keys());
  config.tracing = detail::defaults(detail::tracing_keys());
  config.source = name;
  auto problems = detail::read_file(std::get<detail::TomlTable>(parsed), config);
  if (environment) {
    for (auto& problem : detail::read_environment(environment, config)) problems.push_back({0, std::move(problem)});
  }
  if (kafka_check) check_kafka(config, kafka_check, problems);
  // A setting that could not be read keeps its default. Relations are checked nevertheless, so that one start shows all
  // problems.
  for (auto& problem : detail::check_config(config)) problems.push_back({0, std::move(problem)});
  if (!problems.empty()) throw ConfigError(in_order(std::move(problems)));
  config.kafka.try_emplace("group.id", kDefaultGroup);
  return config;
}

std::string Config::where(const std::string& key) const {
  const auto found = lines.find(key);
  if (found == lines.end()) return key;
  if (found->second == 0) return "environment " + detail::variable_of(key, *this) + ": " + key;
  return source + ":" + std::to_string(found->second) + ": " + key;
}

std::string Config::client() const {
  const auto found = kafka.find("client.id");
  return found == kafka.end() || found->second.empty() ? group() : found->second;
}

std::string Config::group() const {
  const auto found = kafka.find("group.id");
  return found == kafka.end() ? kDefaultGroup : found->second;
}

}  // namespace turnstile
