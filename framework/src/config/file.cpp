#include "config/file.hpp"

#include <algorithm>
#include <array>

#include "config/check.hpp"
#include "config/settings_table.hpp"
#include "config/suggest.hpp"
#include "message/names.hpp"

namespace turnstile::detail {
namespace {

constexpr std::array<std::string_view, 8> kSections{"kafka", "postgres", "consumer", "limits",
                                                    "log",   "admin",    "tracing",  "topics"};

struct Leaf {
  std::string key;  ///< below its section: "limit", "retry.attempts"
  ConfigValue value;
  int line = 0;
};

/// Tables within a section become keys with dots in them.
void collect(const TomlTable& table, const std::string& prefix, std::vector<Leaf>& leaves) {
  for (const auto& [name, node] : table) {
    if (const auto* inner = node.table()) collect(*inner, prefix + name + ".", leaves);
    else leaves.push_back({prefix + name, std::get<ConfigValue>(node.content), node.line});
  }
}

std::vector<Leaf> leaves_of(const TomlTable& table) {
  std::vector<Leaf> leaves;
  collect(table, "", leaves);
  return leaves;
}

template <class Section>
std::vector<std::string_view> names_of(std::span<const Setting<Section>> keys) {
  std::vector<std::string_view> names;
  for (const auto& setting : keys) names.push_back(setting.name);
  return names;
}

class FileReader {
 public:
  explicit FileReader(Config& config) : config_(config) {}

  std::vector<ConfigProblem> read(const TomlTable& root) {
    for (const auto& [name, node] : root) {
      config_.lines[name] = node.line;
      if (std::find(kSections.begin(), kSections.end(), name) == kSections.end()) unknown_section(name, node);
      else if (const auto* table = node.table()) section(name, *table);
      else problem(name, node.line, "must be a section, [" + name + "], not a value");
    }
    return std::move(problems_);
  }

 private:
  void problem(const std::string& key, int line, const std::string& why) {
    problems_.push_back({line, config_.source + ":" + std::to_string(line) + ": " + key + ": " + why});
  }

  void section(const std::string& name, const TomlTable& table) {
    if (name == "kafka") kafka(table);
    else if (name == "postgres")
      settings(name, table, postgres_keys(), config_.postgres.emplace(defaults(postgres_keys())));
    else if (name == "consumer") settings(name, table, consumer_keys(), config_.consumer);
    else if (name == "limits") settings(name, table, limits_keys(), config_.limits);
    else if (name == "log") settings(name, table, log_keys(), config_.log);
    else if (name == "admin") settings(name, table, admin_keys(), config_.admin);
    else if (name == "tracing") settings(name, table, tracing_keys(), config_.tracing);
    else topics(table);
  }

  void unknown_section(const std::string& name, const TomlNode& node) {
    std::string why = node.table() != nullptr ? "unknown section" : "unknown key";
    if (const auto near = suggest(name, kSections)) {
      why += "; did you mean [" + std::string(*near) + "]?";
    } else {
      why +=
          "; the sections are [kafka], [postgres], [consumer], [limits], [log], [admin], [tracing] and [topics.NAME]";
    }
    problem(name, node.line, why);
  }

  void kafka(const TomlTable& table) {
    for (const auto& leaf : leaves_of(table)) {
      std::string text;
      if (auto why = read_as_text(leaf.value, text)) {
        problem("kafka." + leaf.key, leaf.line, *why);
        continue;
      }
      config_.kafka[leaf.key] = std::move(text);
      config_.lines["kafka." + leaf.key] = leaf.line;
    }
  }

  template <class Section>
  void settings(const std::string& prefix, const TomlTable& table, std::span<const Setting<Section>> keys,
                Section& into) {
    for (const auto& leaf : leaves_of(table)) {
      const std::string key = prefix + "." + leaf.key;
      const auto* known = std::find_if(keys.data(), keys.data() + keys.size(),
                                       [&](const auto& setting) { return setting.name == leaf.key; });
      if (known == keys.data() + keys.size()) {
        unknown_key(key, leaf, names_of(keys));
        continue;
      }
      config_.lines[key] = leaf.line;
      if (auto why = known->read(leaf.value, into)) problem(key, leaf.line, *why);
    }
  }

  void unknown_key(const std::string& key, const Leaf& leaf, const std::vector<std::string_view>& names) {
    if (leaf.key == "retry" && std::find(names.begin(), names.end(), "retry.attempts") != names.end()) {
      problem(key, leaf.line, "must be a table, such as { attempts = 5, backoff = \"100ms..30s\" }");
      return;
    }
    std::string why = "unknown key";
    if (const auto near = suggest(leaf.key, names)) {
      why += "; did you mean '" + std::string(*near) + "'?";
    } else {
      why += "; the keys here are ";
      for (std::size_t i = 0; i < names.size(); ++i) why += (i == 0 ? "" : ", ") + std::string(names[i]);
    }
    problem(key, leaf.line, why);
  }

  void topics(const TomlTable& table) {
    for (const auto& [topic, node] : table) {
      const std::string key = "topics." + topic;
      config_.lines[key] = node.line;
      const auto* inner = node.table();
      if (inner == nullptr) {
        problem(key, node.line, "must be a section, such as [topics.payments], with the settings of one topic");
      } else if (auto why = check_topic_name(topic)) {
        problem(key, node.line, *why);
      } else if (!unquoted_dot(topic, *inner)) {
        settings(key, *inner, topic_keys(), config_.topics[topic]);
      }
    }
  }

  /// Reports [topics.pay.v2] without quotes. In TOML this is a table within [topics.pay].
  bool unquoted_dot(const std::string& topic, const TomlTable& table) {
    bool found = false;
    for (const auto& [name, node] : table) {
      if (node.table() == nullptr || name == "retry") continue;
      const bool known_prefix = suggest(name, std::array<std::string_view, 1>{"retry"}).has_value();
      if (known_prefix) continue;
      problem(
          "topics." + topic + "." + name, node.line,
          "unknown section; put a topic name that contains a dot in quotes: [topics.\"" + topic + "." + name + "\"]");
      found = true;
    }
    return found;
  }

  Config& config_;
  std::vector<ConfigProblem> problems_;
};

}  // namespace

std::vector<ConfigProblem> read_file(const TomlTable& root, Config& config) { return FileReader(config).read(root); }

}  // namespace turnstile::detail
