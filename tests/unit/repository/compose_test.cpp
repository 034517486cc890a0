// compose/compose.yaml cannot be run by these tests. They hold it against the compose specification's shape
// (github.com/compose-spec/compose-spec), and against what this source tree really has: files, verbs, settings.

#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/read_file.hpp"
#include "tests/unit/repository/root.hpp"
#include "turnstile/config.hpp"

namespace {

namespace fs = std::filesystem;

const fs::path compose_folder = root / "compose";

using turnstile::test::read_file;

YAML::Node compose() { return YAML::LoadFile((compose_folder / "compose.yaml").string()); }

std::vector<std::string> keys(const YAML::Node& map) {
  std::vector<std::string> names;
  for (const auto& entry : map) names.push_back(entry.first.as<std::string>());
  return names;
}

std::vector<std::string> words(const YAML::Node& list) {
  std::vector<std::string> all;
  for (const auto& word : list) all.push_back(word.as<std::string>());
  return all;
}

// Reads the words between `begin` and `end` of a text, options and line ends left out.
std::set<std::string> packages_between(const std::string& text, const std::string& begin, const std::string& end) {
  const auto from = text.find(begin);
  EXPECT_NE(from, std::string::npos) << "no \"" << begin << '"';
  std::istringstream in{text.substr(from + begin.size(), text.find(end, from) - from - begin.size())};
  std::set<std::string> names;
  for (std::string word; in >> word;)
    if (word != "\\" && !word.starts_with("-")) names.insert(word);
  return names;
}

// The attributes of a service in compose-spec.json that this file may come to use, and the form of each value.
enum class Form { text, list, map, list_or_text };
const std::map<std::string, Form> service_attributes{{"image", Form::text},
                                                     {"build", Form::map},
                                                     {"command", Form::list_or_text},
                                                     {"entrypoint", Form::list_or_text},
                                                     {"environment", Form::map},
                                                     {"ports", Form::list},
                                                     {"volumes", Form::list},
                                                     {"depends_on", Form::map},
                                                     {"healthcheck", Form::map},
                                                     {"restart", Form::text},
                                                     {"stop_grace_period", Form::text},
                                                     {"user", Form::text},
                                                     {"working_dir", Form::text},
                                                     {"profiles", Form::list}};

bool has_form(const YAML::Node& value, Form form) {
  switch (form) {
    case Form::text: return value.IsScalar();
    case Form::list: return value.IsSequence();
    case Form::map: return value.IsMap();
    case Form::list_or_text: return value.IsSequence() || value.IsScalar();
  }
  return false;
}

// A scalar that YAML 1.1 or 1.2 would take for a number, a truth or nothing, unless it is quoted.
bool is_plain_non_text(const YAML::Node& value) {
  static const std::regex pattern{"|~|null|true|false|yes|no|on|off|[-+]?[0-9]+(\\.[0-9]*)?", std::regex::icase};
  return value.Tag() != "!" && std::regex_match(value.Scalar(), pattern);
}

TEST(Compose, has_the_specifications_shape) {
  const auto file = compose();
  for (const auto& key : keys(file))
    EXPECT_TRUE((std::set<std::string>{"name", "services", "volumes"}.contains(key)))
        << key << ": not a top-level element";
  ASSERT_GE(file["services"].size(), 4U);

  for (const auto& service : file["services"]) {
    const auto name = service.first.as<std::string>();
    EXPECT_TRUE(std::regex_match(name, std::regex{"[a-zA-Z0-9._-]+"})) << name;
    for (const auto& attribute : service.second) {
      const auto key = attribute.first.as<std::string>();
      const auto known = service_attributes.find(key);
      ASSERT_NE(known, service_attributes.end()) << name << '.' << key << ": not an attribute of a service";
      EXPECT_TRUE(has_form(attribute.second, known->second))
          << name << '.' << key << ": has another form in the specification";
    }
    EXPECT_TRUE(service.second["image"] || service.second["build"]) << name << ": neither image nor build";
    for (const auto& variable : service.second["environment"])
      EXPECT_FALSE(is_plain_non_text(variable.second)) << name << ": quote the value of " << variable.first;
    if (const auto restart = service.second["restart"]) {
      EXPECT_TRUE(
          (std::set<std::string>{"no", "always", "on-failure", "unless-stopped"}.contains(restart.as<std::string>())))
          << name << ".restart: " << restart;
      EXPECT_FALSE(is_plain_non_text(restart)) << name << ": quote \"no\", which YAML takes for false";
    }
  }
}

// docs/operations/deploy.md: handlers that do not return, Kafka, and spans.
TEST(Compose, the_grace_period_is_enough_for_a_drain) {
  using namespace std::chrono_literals;
  const auto grace = compose()["services"]["payments"]["stop_grace_period"].as<std::string>();
  ASSERT_TRUE(std::regex_match(grace, std::regex{"[0-9]+s"})) << grace;
  const auto config = turnstile::Config::parse(read_file(root / "examples/payments/turnstile.toml"), "turnstile.toml");
  EXPECT_GE(std::chrono::seconds(std::stoi(grace)), config.consumer.drain_timeout + 3s + 20s + 2s);
}

TEST(Compose, waits_only_for_what_is_there_and_says_when_it_is_ready) {
  const auto services = compose()["services"];
  int waits = 0;
  for (const auto& service : services) {
    for (const auto& wait : service.second["depends_on"]) {
      const auto who = service.first.as<std::string>() + " waits for " + wait.first.as<std::string>();
      const auto other = services[wait.first.as<std::string>()];
      const auto condition = wait.second["condition"].as<std::string>();
      ASSERT_TRUE(other) << who << ", which is not a service";
      if (condition == "service_healthy") EXPECT_TRUE(other["healthcheck"]) << who << ", which has no healthcheck";
      else if (condition == "service_completed_successfully")
        EXPECT_EQ(other["restart"].as<std::string>(), "no") << who << ", which never ends";
      else ADD_FAILURE() << who << " with condition " << condition;
      ++waits;
    }
    for (const auto& part : service.second["healthcheck"]) {
      const auto key = part.first.as<std::string>();
      if (key == "test")
        EXPECT_TRUE((std::set<std::string>{"CMD", "CMD-SHELL"}.contains(part.second[0].as<std::string>())));
      else if (key == "retries") EXPECT_GT(part.second.as<int>(), 0);
      else
        EXPECT_TRUE(std::regex_match(part.second.as<std::string>(), std::regex{"[0-9]+s"}))
            << key << ": " << part.second;
    }
  }
  EXPECT_GE(waits, 4);
}

TEST(Compose, pins_its_images) {
  const std::regex pinned{"[a-z0-9/._-]+:v?[0-9]+\\.[0-9]+[a-z0-9.-]*(@sha256:[0-9a-f]{64})?"};
  std::set<std::string> built;
  for (const auto& service : compose()["services"])
    if (service.second["build"]) built.insert(service.second["image"].as<std::string>());
  EXPECT_EQ(built.size(), 1U);
  for (const auto& service : compose()["services"]) {
    const auto image = service.second["image"].as<std::string>();
    EXPECT_TRUE(built.contains(image) || std::regex_match(image, pinned)) << image << ": name a version";
  }
  std::istringstream dockerfile{read_file(compose_folder / "Dockerfile")};
  int bases = 0;
  for (std::string line; std::getline(dockerfile, line);) {
    std::smatch from;
    if (!std::regex_match(line, from, std::regex{"FROM ([^ ]+)( AS [a-z]+)?"})) continue;
    ++bases;
    EXPECT_TRUE(std::regex_match(from[1].str(), pinned)) << line << ": name a version";
  }
  EXPECT_EQ(bases, 2);
}

TEST(Compose, names_files_that_are_there) {
  const auto file = compose();
  int mounted = 0;
  for (const auto& service : file["services"]) {
    for (const auto& volume : words(service.second["volumes"])) {
      const auto source = volume.substr(0, volume.find(':'));
      if (!source.starts_with(".")) {
        EXPECT_TRUE(file["volumes"][source]) << volume << ": the volume is not declared";
        continue;
      }
      EXPECT_TRUE(fs::exists(compose_folder / source)) << volume << ": there is no such file in the source tree";
      ++mounted;
    }
    if (const auto build = service.second["build"]) {
      const auto context = compose_folder / build["context"].as<std::string>();
      EXPECT_TRUE(fs::equivalent(context, root)) << context;
      EXPECT_TRUE(fs::exists(context / build["dockerfile"].as<std::string>())) << build["dockerfile"];
    }
  }
  EXPECT_GE(mounted, 2);
}

// The file that the service's command names, as the source tree has it; found through the mounts.
fs::path mounted_file(const YAML::Node& service, const std::string& inside) {
  for (const auto& volume : words(service["volumes"])) {
    const auto colon = volume.find(':');
    if (volume.substr(colon + 1, inside.size()) == inside) return compose_folder / volume.substr(0, colon);
  }
  ADD_FAILURE() << inside << ": nothing is mounted there";
  return {};
}

TEST(Compose, every_setting_is_one_that_the_code_reads) {
  int settings = 0;
  for (const auto& service : compose()["services"]) {
    std::map<std::string, std::string> given;
    for (const auto& variable : service.second["environment"])
      if (const auto name = variable.first.as<std::string>(); name.starts_with("TURNSTILE_"))
        given[name] = variable.second.as<std::string>();
    if (given.empty()) continue;

    std::string toml;
    const auto command = words(service.second["command"]);
    if (command.back().ends_with(".toml")) toml = read_file(mounted_file(service.second, command.back()));
    std::set<std::string> asked;
    const auto config =
        turnstile::Config::parse(toml, "compose", [&](std::string_view name) -> std::optional<std::string> {
          asked.emplace(name);
          const auto found = given.find(std::string{name});
          return found == given.end() ? std::nullopt : std::optional{found->second};
        });
    for (const auto& [name, value] : given) {
      EXPECT_TRUE(asked.contains(name)) << service.first << ": nothing reads " << name;
      ++settings;
    }
    ASSERT_TRUE(config.postgres) << service.first;
    EXPECT_EQ(config.postgres->url.reveal(), given.at("TURNSTILE_POSTGRES_URL")) << service.first;
  }
  EXPECT_GE(settings, 5);
}

std::string output_of(const std::string& command) {
  std::string text;
  const auto close = [](std::FILE* pipe) { ::pclose(pipe); };
  const std::unique_ptr<std::FILE, decltype(close)> pipe{::popen((command + " 2>&1").c_str(), "r"), close};
  std::array<char, 512> part{};
  while (pipe && std::fgets(part.data(), part.size(), pipe.get())) text += part.data();
  return text;
}

// A verb that does not exist shows the help of the one before it; that it is not this one's says the usage line.
bool is_verb(const std::string& words) {
  const auto help = output_of(std::string{TURNSTILE_BIN_DIR} + "/turnstile " + words + " --help");
  return help.find("Usage: turnstile " + words + ' ') != std::string::npos;
}

TEST(Compose, every_verb_is_one_of_the_command_lines) {
  EXPECT_FALSE(is_verb("migrate sideways")) << "everything passes for a verb, so the lines below prove nothing";
  int verbs = 0;
  for (const auto& service : compose()["services"]) {
    const YAML::Node command = service.second["command"];
    if (!command.IsDefined() || !command.IsSequence() || command[0].as<std::string>() != "turnstile") continue;
    std::string line;
    for (std::size_t i = 1; i < command.size(); ++i) line += (i == 1 ? "" : " ") + command[i].as<std::string>();
    EXPECT_TRUE(is_verb(line)) << service.first << ": turnstile " << line;
    ++verbs;
  }
  EXPECT_GE(verbs, 1);
}

TEST(Compose, the_image_is_built_with_the_packages_that_dev_installs) {
  const auto in_image = packages_between(read_file(compose_folder / "Dockerfile"), "--no-install-recommends", "&&");
  std::istringstream dev{read_file(root / "dev")};
  std::set<std::string> wanted;
  bool inside = false;
  for (std::string line; std::getline(dev, line);) {
    if (line.starts_with("packages_")) inside = line.starts_with("packages_build=");
    std::istringstream fields{line};
    std::string name;
    std::string probe;
    if (inside && fields >> name >> probe && probe.ends_with("_") && name != "ccache") wanted.insert(name);
  }
  EXPECT_GE(wanted.size(), 10U);
  EXPECT_EQ(in_image, wanted);
}

}  // namespace
