// turnstile config: explains each setting, its value in effect, and the origin of that value.

#include <fmt/format.h>

#include <memory>
#include <string>

#include "command.hpp"
#include "settings.hpp"
#include "text.hpp"
#include "turnstile/explain.hpp"
#include "turnstile/kafka/broker.hpp"

namespace turnstile::cli {

namespace {

Json json_of(const ExplainedSetting& setting) {
  return {{"key", setting.key},
          {"value", setting.value.empty() ? Json(nullptr) : Json(setting.value)},
          {"instead", setting.instead},
          {"source", setting.source},
          {"what", setting.what}};
}

std::string value_text(const ExplainedSetting& setting) {
  if (setting.value.empty()) return "not set: " + setting.instead;
  const auto meaning = setting.instead.find(": ");
  return setting.value + (meaning == std::string::npos ? "" : " (" + setting.instead.substr(meaning + 2) + ")");
}

Exit explain_settings(const Global& global, const std::string& key) {
  const Config config = load_settings(global, kafka::check_settings);
  const auto settings = key.empty() ? explain(config) : explain(config, key);
  if (global.json) {
    Json all = Json::array();
    for (const auto& setting : settings) all.push_back(json_of(setting));
    print(all);
    return Exit::ok;
  }
  for (const auto& setting : settings) {
    fmt::print("{} = {}\n  {}\n", setting.key, value_text(setting), setting.source);
    if (!key.empty()) fmt::print("  {}\n", setting.what);
  }
  return Exit::ok;
}

Exit example(bool reference) {
  fmt::print("{}", reference ? settings_reference() : example_config());
  return Exit::ok;
}

}  // namespace

void add_config(Verb app, Command& command) {
  const auto verb = app.add_verb("config", "what each setting is, and which value is in effect");
  verb.needs_verb();

  const auto key = std::make_shared<std::string>();
  const auto explained =
      verb.add_verb("explain", "values in effect, and where each comes from: the default, the file or the environment");
  explained.add_option("KEY", *key, "one setting (topics.payments.limit) or a section (consumer)").type("");
  explained.runs(command, [key](const Global& global) { return explain_settings(global, *key); });

  const auto markdown = std::make_shared<bool>(false);
  const auto shown = verb.add_verb("example", "a configuration file with every setting and its default");
  shown.add_flag("--markdown", *markdown, "the tables of the reference page instead");
  shown.runs(command, [markdown](const Global&) { return example(*markdown); });
}

}  // namespace turnstile::cli
