#include "core/config_environment.hpp"

#include <map>
#include <set>

#include "core/config_keys.hpp"

namespace turnstile {
namespace {

class EnvironmentReader {
 public:
  EnvironmentReader(const Config::Environment& environment, Config& config)
      : environment_(environment), config_(config) {}

  std::vector<std::string> read() {
    kafka();
    postgres();
    section("consumer", consumer_keys(), config_.consumer);
    section("limits", limits_keys(), config_.limits);
    section("log", log_keys(), config_.log);
    topics();
    return std::move(problems_);
  }

 private:
  std::optional<ConfigValue> look_up(const std::string& key) const {
    auto text = environment_(environment_name(key));
    if (!text || text->empty()) return std::nullopt;
    return ConfigValue{std::move(*text), true};
  }

  void problem(const std::string& key, const std::string& why) {
    problems_.push_back("environment " + environment_name(key) + ": " + key + ": " + why);
  }

  /// True when any variable of the section is set.
  template <class Section>
  bool section(const std::string& prefix, std::span<const Setting<Section>> keys, Section& into) {
    bool any = false;
    for (const auto& setting : keys) {
      const std::string key = prefix + "." + std::string(setting.name);
      const auto value = look_up(key);
      if (!value) continue;
      any = true;
      if (auto why = setting.read(*value, into)) {
        problem(key, *why);
        config_.lines.try_emplace(key, 0);
      } else {
        config_.lines[key] = 0;
      }
    }
    return any;
  }

  void kafka() {
    std::set<std::string> keys;
    for (const auto& [key, value] : config_.kafka) keys.insert(key);
    for (const auto key : kafka_environment_keys()) keys.insert(std::string(key));
    for (const auto& key : keys) {
      auto value = look_up("kafka." + key);
      if (!value) continue;
      config_.kafka[key] = std::move(std::get<std::string>(value->value));
      config_.lines["kafka." + key] = 0;
    }
  }

  void postgres() {
    PostgresSettings settings = config_.postgres.value_or(PostgresSettings{});
    if (section("postgres", postgres_keys(), settings)) config_.postgres = std::move(settings);
  }

  void topics() {
    std::map<std::string, std::string> topic_of;  // by the variable's name: 'pay.v2' and 'pay-v2' have the same
    for (auto& [topic, settings] : config_.topics) {
      const std::string prefix = "topics." + topic;
      const auto [other, is_first] = topic_of.try_emplace(environment_name(prefix), topic);
      if (is_first) section(prefix, topic_keys(), settings);
      else ambiguous(topic, other->second);
    }
  }

  void ambiguous(const std::string& topic, const std::string& other) {
    for (const auto& setting : topic_keys()) {
      const std::string key = "topics." + topic + "." + std::string(setting.name);
      if (!look_up(key)) continue;
      problems_.push_back("environment " + environment_name(key) + ": may mean topic '" + other + "' or '" + topic +
                          "', whose variables have the same names; set it in the file");
    }
  }

  const Config::Environment& environment_;
  Config& config_;
  std::vector<std::string> problems_;
};

}  // namespace

std::string environment_name(std::string_view key) {
  std::string name = "TURNSTILE_";
  for (const char c : key) {
    if (c >= 'a' && c <= 'z') name += static_cast<char>(c - 'a' + 'A');
    else if ((c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9')) name += c;
    else name += '_';
  }
  return name;
}

std::vector<std::string> read_environment(const Config::Environment& environment, Config& config) {
  return EnvironmentReader(environment, config).read();
}

}  // namespace turnstile
