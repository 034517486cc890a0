#include "config/environment.hpp"

#include <algorithm>
#include <array>
#include <map>

#include "config/settings_table.hpp"
#include "config/suggest.hpp"

namespace turnstile::detail {
namespace {

constexpr std::string_view kPrefix = "TURNSTILE_";
/// Variables that other parts read: failpoints, and the tests of this project.
constexpr std::string_view kFailpoint = "TURNSTILE_FAILPOINT";
constexpr std::string_view kTestPrefix = "TURNSTILE_TEST_";

/// Settings of librdkafka that the environment may set although the file does not name them: addresses and credentials
/// of the brokers. Any other one must be in the file.
constexpr std::array<std::string_view, 28> kKafkaKeys{"auto.offset.reset",
                                                      "bootstrap.servers",
                                                      "broker.address.family",
                                                      "client.id",
                                                      "client.rack",
                                                      "debug",
                                                      "group.id",
                                                      "group.instance.id",
                                                      "max.poll.interval.ms",
                                                      "sasl.kerberos.keytab",
                                                      "sasl.kerberos.principal",
                                                      "sasl.kerberos.service.name",
                                                      "sasl.mechanism",
                                                      "sasl.mechanisms",
                                                      "sasl.oauthbearer.config",
                                                      "sasl.password",
                                                      "sasl.username",
                                                      "security.protocol",
                                                      "session.timeout.ms",
                                                      "ssl.ca.location",
                                                      "ssl.ca.pem",
                                                      "ssl.certificate.location",
                                                      "ssl.certificate.pem",
                                                      "ssl.endpoint.identification.algorithm",
                                                      "ssl.key.location",
                                                      "ssl.key.password",
                                                      "ssl.key.pem",
                                                      "ssl.keystore.password"};

constexpr std::array<std::pair<std::string_view, const char*>, 4> kOpenTelemetry{
    {{"tracing.endpoint", "OTEL_EXPORTER_OTLP_ENDPOINT"},
     {"tracing.headers", "OTEL_EXPORTER_OTLP_HEADERS"},
     {"tracing.service_name", "OTEL_SERVICE_NAME"},
     {"tracing.ca_file", "OTEL_EXPORTER_OTLP_CERTIFICATE"}}};

/// The keys of [kafka] that have a variable.
std::set<std::string> kafka_keys(const Config& config) {
  std::set<std::string> keys;
  for (const auto& [key, value] : config.kafka) keys.insert(key);
  for (const auto key : kKafkaKeys) keys.insert(std::string(key));
  return keys;
}

std::set<std::string> all_topics(std::set<std::string> topics, const Config& config) {
  for (const auto& [topic, settings] : config.topics) topics.insert(topic);
  return topics;
}

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
    section("admin", admin_keys(), config_.admin);
    section("tracing", tracing_keys(), config_.tracing);
    open_telemetry();
    topics(all_topics({}, config_));
    return std::move(problems_);
  }

  std::vector<std::string> read_topics_too(const std::set<std::string>& topics_of_program) {
    topics(all_topics(topics_of_program, config_));
    return std::move(problems_);
  }

 private:
  std::optional<ConfigValue> look_up(const std::string& key) const {
    auto text = environment_(environment_name(key));
    if (!text || text->empty()) return std::nullopt;
    return ConfigValue{std::move(*text), true};
  }

  void problem(const std::string& key, const std::string& why) {
    problems_.push_back("environment " + variable_of(key, config_) + ": " + key + ": " + why);
  }

  /// The standard variables of OpenTelemetry, for settings that nothing else sets.
  void open_telemetry() {
    for (const auto& [key, variable] : kOpenTelemetry) {
      const auto text = config_.lines.contains(std::string(key)) ? std::nullopt : environment_(variable);
      if (!text || text->empty()) continue;
      if (key == "tracing.endpoint" && !is_for_http()) continue;
      const std::string name(key);
      const auto setting = std::find_if(tracing_keys().begin(), tracing_keys().end(), [&](const auto& one) {
        return one.name == std::string_view(name).substr(name.find('.') + 1);
      });
      config_.other_variables[name] = variable;
      config_.lines[name] = 0;
      if (auto why = setting->read(ConfigValue{*text, true}, config_.tracing)) problem(name, *why);
    }
  }

  /// Whether OpenTelemetry's endpoint, if there is one, understands what Turnstile sends. Its port for gRPC does not.
  [[nodiscard]] bool is_for_http() const {
    const auto protocol = environment_("OTEL_EXPORTER_OTLP_PROTOCOL");
    return !protocol || protocol->empty() || *protocol == "http/protobuf";
  }

  /// Returns whether any variable of the section is set.
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
    for (const auto& key : kafka_keys(config_)) {
      auto value = look_up("kafka." + key);
      if (!value) continue;
      config_.kafka[key] = std::move(std::get<std::string>(value->value));
      config_.lines["kafka." + key] = 0;
    }
  }

  void postgres() {
    PostgresSettings settings = config_.postgres.value_or(defaults(postgres_keys()));
    if (section("postgres", postgres_keys(), settings)) config_.postgres = std::move(settings);
  }

  void topics(const std::set<std::string>& names) {
    std::map<std::string, std::string> topic_of;  // by the variable's name: 'pay.v2' and 'pay-v2' have the same
    for (const auto& topic : names) {
      const std::string prefix = "topics." + topic;
      const auto [other, is_first] = topic_of.try_emplace(environment_name(prefix), topic);
      if (!is_first) {
        ambiguous(topic, other->second);
        continue;
      }
      const auto known = config_.topics.find(topic);
      TopicSettings settings = known == config_.topics.end() ? TopicSettings{} : known->second;
      if (section(prefix, topic_keys(), settings)) config_.topics[topic] = std::move(settings);
    }
  }

  void ambiguous(const std::string& topic, const std::string& other) {
    for (const auto& setting : topic_keys()) {
      const std::string key = "topics." + topic + "." + std::string(setting.name);
      if (!look_up(key)) continue;
      problems_.push_back("environment " + environment_name(key) + ": could mean topic '" + other + "' or topic '" +
                          topic + "': their variables have the same names; set the value in the file");
    }
  }

  const Config::Environment& environment_;
  Config& config_;
  std::vector<std::string> problems_;
};

template <class Section>
void add_names(std::set<std::string>& names, const std::string& section, std::span<const Setting<Section>> keys) {
  for (const auto& setting : keys) names.insert(environment_name(section + "." + std::string(setting.name)));
}

std::set<std::string> variables_that_are_read(const std::set<std::string>& topics, const Config& config) {
  std::set<std::string> names;
  for (const auto& key : kafka_keys(config)) names.insert(environment_name("kafka." + key));
  add_names(names, "postgres", postgres_keys());
  add_names(names, "consumer", consumer_keys());
  add_names(names, "limits", limits_keys());
  add_names(names, "log", log_keys());
  add_names(names, "admin", admin_keys());
  add_names(names, "tracing", tracing_keys());
  for (const auto& topic : topics) add_names(names, "topics." + topic, topic_keys());
  return names;
}

std::string unread(const std::string& variable, const std::set<std::string>& names) {
  // Compares names without the prefix of all of them, which would make any two names similar.
  const auto own_part = [](std::string_view name) { return name.substr(kPrefix.size()); };
  std::vector<std::string_view> candidates;
  for (const auto& name : names) candidates.push_back(own_part(name));
  const std::string text = "environment " + variable + ": Turnstile does not read this variable, so it has no effect; ";
  if (const auto near = suggest(own_part(variable), candidates))
    return text + "did you mean " + std::string(kPrefix) + std::string(*near) + "?";
  if (variable.starts_with("TURNSTILE_KAFKA_"))
    return text + "add the librdkafka setting to [kafka] in the file; then this variable overrides it";
  if (variable.starts_with("TURNSTILE_TOPICS_"))
    return text + "the program has no such topic, or a topic has no such setting";
  return text + "unset it, or correct its name: TURNSTILE_SECTION_KEY, such as TURNSTILE_POSTGRES_URL";
}

}  // namespace

std::string environment_name(std::string_view key) {
  std::string name(kPrefix);
  for (const char c : key) {
    if (c >= 'a' && c <= 'z') name += static_cast<char>(c - 'a' + 'A');
    else if ((c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9')) name += c;
    else name += '_';
  }
  return name;
}

std::string variable_of(const std::string& key, const Config& config) {
  const auto other = config.other_variables.find(key);
  return other == config.other_variables.end() ? environment_name(key) : other->second;
}

std::vector<std::string> read_environment(const Config::Environment& environment, Config& config) {
  return EnvironmentReader(environment, config).read();
}

std::vector<std::string> read_environment(const std::set<std::string>& topics_of_program, Config& config) {
  if (!config.environment) return {};
  return EnvironmentReader(config.environment, config).read_topics_too(topics_of_program);
}

std::vector<std::string> unread_variables(const std::set<std::string>& topics_of_program, const Config& config) {
  const auto names = variables_that_are_read(all_topics(topics_of_program, config), config);
  std::vector<std::string> found;
  for (const auto& variable : config.variables) {
    if (names.contains(variable) || variable == kFailpoint || variable.starts_with(kTestPrefix)) continue;
    found.push_back(unread(variable, names));
  }
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace turnstile::detail
