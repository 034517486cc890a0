#include "turnstile/explain.hpp"

#include <algorithm>
#include <optional>
#include <span>

#include "config/codec.hpp"
#include "config/environment.hpp"
#include "config/secrets.hpp"
#include "config/settings_table.hpp"
#include "config/suggest.hpp"
#include "turnstile/error.hpp"

namespace turnstile {
namespace {

constexpr std::string_view kAnyTopic = "NAME";
constexpr std::size_t kWidth = 100;

/// As prose: "`500`", "the topic's name", "`0`: one for each worker".
template <class Section>
std::string fallback_text(const detail::Setting<Section>& setting) {
  const std::string value(setting.fallback);
  if (setting.otherwise.empty()) return "`" + value + "`";
  if (value.empty()) return std::string(setting.otherwise);
  const auto meaning = setting.otherwise.find(": ");
  return "`" + value + "`" + (meaning == std::string_view::npos ? "" : std::string(setting.otherwise.substr(meaning)));
}

class Explainer {
 public:
  Explainer(const Config& config, const SettingsInCode* in_code) : config_(config), in_code_(in_code) {}

  std::vector<ExplainedSetting> all() {
    kafka();
    section("postgres", detail::postgres_keys(), config_.postgres.value_or(detail::defaults(detail::postgres_keys())));
    section("consumer", detail::consumer_keys(), config_.consumer);
    section("limits", detail::limits_keys(), config_.limits);
    section("log", detail::log_keys(), config_.log);
    section("admin", detail::admin_keys(), config_.admin);
    section("tracing", detail::tracing_keys(), config_.tracing);
    for (const auto& name : topics()) topic(name);
    return std::move(found_);
  }

  /// Treats the topic as if the file had a section for it.
  void add_topic(std::string name) { also_ = std::move(name); }

 private:
  [[nodiscard]] std::vector<std::string> topics() const {
    std::vector<std::string> names;
    for (const auto& [name, settings] : config_.topics) names.push_back(name);
    if (in_code_ != nullptr)
      for (const auto& [name, settings] : *in_code_) names.push_back(name);
    if (!also_.empty()) names.push_back(also_);
    std::sort(names.begin(), names.end());
    names.erase(std::unique(names.begin(), names.end()), names.end());
    return names;
  }

  /// The place in the file or the environment that sets it. Absent: neither sets it.
  [[nodiscard]] std::optional<std::string> place_of(const std::string& key) const {
    const auto line = config_.lines.find(key);
    if (line == config_.lines.end()) return std::nullopt;
    if (line->second == 0) return "environment " + detail::variable_of(key, config_);
    return config_.source + ":" + std::to_string(line->second);
  }

  void kafka() {
    for (const auto& [name, value] : config_.kafka) {
      const std::string key = "kafka." + name;
      found_.push_back({.key = key,
                        .value = detail::codec::toml_text(detail::is_secret_kafka_key(name) ? "***" : value),
                        .instead = {},
                        .source = place_of(key).value_or("default"),
                        .what = "Passed on to librdkafka; see its CONFIGURATION.md."});
    }
  }

  template <class Section>
  void section(const std::string& prefix, std::span<const detail::Setting<Section>> keys, const Section& values) {
    for (const auto& setting : keys) {
      const std::string key = prefix + "." + std::string(setting.name);
      add(key, setting.write(values), setting, place_of(key).value_or("default"));
    }
  }

  void topic(const std::string& name) {
    const auto configured = config_.topics.find(name);
    const TopicSettings file = configured == config_.topics.end() ? TopicSettings{} : configured->second;
    const TopicSettings* code = nullptr;
    if (in_code_ != nullptr) {
      const auto found = in_code_->find(name);
      if (found != in_code_->end()) code = &found->second;
    }
    const TopicSettings below = code == nullptr ? detail::topic_defaults() : merge(detail::topic_defaults(), *code);
    const TopicSettings effective = merge(below, file);
    for (const auto& setting : detail::topic_keys()) {
      const std::string key = "topics." + name + "." + std::string(setting.name);
      // The program may have set only a part of the setting. The other part then has its default.
      const bool in_code =
          code != nullptr && (setting.write(*code) || setting.write(below) != setting.write(detail::topic_defaults()));
      auto source = place_of(key);
      if (!source) source = in_code ? "code" : in_code_ == nullptr ? "default, unless the program sets it" : "default";
      add(key, setting.write(effective), setting, *source);
    }
  }

  template <class Section>
  void add(const std::string& key, const std::optional<std::string>& value, const detail::Setting<Section>& setting,
           std::string source) {
    found_.push_back({.key = key,
                      .value = value.value_or(""),
                      .instead = value ? "" : std::string(setting.otherwise),
                      .source = std::move(source),
                      .what = std::string(setting.what)});
  }

  const Config& config_;
  const SettingsInCode* in_code_;
  std::string also_;
  std::vector<ExplainedSetting> found_;
};

/// Returns "payments" for "topics.payments.limit", and also for the misspelt "topics.payments.limt". Empty: the key
/// does not name both a topic and a setting.
std::string topic_in(std::string_view key) {
  constexpr std::string_view kTopics = "topics.";
  if (!key.starts_with(kTopics)) return {};
  key.remove_prefix(kTopics.size());
  for (const auto& setting : detail::topic_keys()) {  // "retry.attempts" has a dot, as names of topics may have
    const std::string ending = "." + std::string(setting.name);
    if (key.size() > ending.size() && key.ends_with(ending))
      return std::string(key.substr(0, key.size() - ending.size()));
  }
  return std::string(key.substr(0, std::min(key.rfind('.'), key.size())));
}

[[noreturn]] void unknown(std::string_view key, const std::vector<ExplainedSetting>& all) {
  std::vector<std::string_view> names;
  for (const auto& setting : all) names.push_back(setting.key);
  std::string text = "there is no setting '" + std::string(key) + "'; ";
  if (const auto near = detail::suggest(key, names)) text += "did you mean '" + std::string(*near) + "'?";
  else text += "write a key like topics.payments.limit or consumer.window";
  throw ConfigError({text});
}

/// Splits the text into lines of at most kWidth characters. Each begins with `prefix`.
std::string wrapped(std::string_view text, const std::string& prefix) {
  std::string out, line = prefix;
  while (!text.empty()) {
    const auto end = std::min(text.find(' '), text.size());
    const auto word = text.substr(0, end);
    if (line.size() > prefix.size() && line.size() + word.size() >= kWidth) {
      out += line + "\n";
      line = prefix;
    }
    line += (line.size() > prefix.size() ? " " : "") + std::string(word);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out + line + "\n";
}

template <class Section>
void example(std::string& out, const std::string& header, std::span<const detail::Setting<Section>> keys) {
  out += "\n" + header + "\n";
  for (const auto& setting : keys) {
    out += wrapped(setting.what, "# ");
    const std::string value(setting.fallback);
    if (value.empty())
      out +=
          wrapped("Default: " + std::string(setting.otherwise) + ".", "# ") + "#" + std::string(setting.name) + " =\n";
    else out += "#" + std::string(setting.name) + " = " + value + "\n";
  }
}

template <class Section>
void reference(std::string& out, const std::string& title, std::span<const detail::Setting<Section>> keys) {
  out += "\n### " + title + "\n\n| key | values | default | meaning |\n|---|---|---|---|\n";
  for (const auto& setting : keys) {
    out += "| `" + std::string(setting.name) + "` | " + setting.form() + " | " + fallback_text(setting) + " | " +
           std::string(setting.what) + " |\n";
  }
}

}  // namespace

std::vector<ExplainedSetting> explain(const Config& config, const SettingsInCode* in_code) {
  return Explainer(config, in_code).all();
}

std::vector<ExplainedSetting> explain(const Config& config, std::string_view key, const SettingsInCode* in_code) {
  Explainer explainer(config, in_code);
  // The program alone may name the topic of this key, so the topic is added. A key with fewer than two dots needs a
  // section or a setting that exists.
  if (key.rfind('.') > key.find('.')) explainer.add_topic(topic_in(key));
  auto all = explainer.all();
  std::vector<ExplainedSetting> found;
  const std::string section = std::string(key) + ".";
  for (const auto& setting : all) {
    if (setting.key == key || setting.key.starts_with(section)) found.push_back(setting);
  }
  if (found.empty()) unknown(key, all);
  return found;
}

std::string example_config() {
  std::string out =
      "# Every setting of Turnstile, with its default. Remove the # to change one.\n"
      "\n[kafka]\n# Passed on to librdkafka; see its CONFIGURATION.md.\n\"bootstrap.servers\" = \"localhost:9092\"\n"
      "\"group.id\" = \"turnstile\"\n";
  example(out, "#[postgres]", detail::postgres_keys());
  example(out, "[consumer]", detail::consumer_keys());
  example(out, "[limits]", detail::limits_keys());
  example(out, "[log]", detail::log_keys());
  example(out, "[admin]", detail::admin_keys());
  example(out, "[tracing]", detail::tracing_keys());
  example(out, "[topics." + std::string(kAnyTopic) + "]", detail::topic_keys());
  return out;
}

std::string settings_reference() {
  std::string out;
  reference(out, "postgres", detail::postgres_keys());
  reference(out, "consumer", detail::consumer_keys());
  reference(out, "limits", detail::limits_keys());
  reference(out, "log", detail::log_keys());
  reference(out, "admin", detail::admin_keys());
  reference(out, "tracing", detail::tracing_keys());
  reference(out, "topics." + std::string(kAnyTopic), detail::topic_keys());
  return out;
}

}  // namespace turnstile
