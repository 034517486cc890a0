// The manifests in compose/kubernetes: their shape, by the schemas of Kubernetes and KEDA; their times and names, by the
// settings and by the code; and the query that scales, by promtool.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <yaml-cpp/yaml.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <string>

#include "tests/support/read_file.hpp"
#include "turnstile/config.hpp"

namespace turnstile {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const fs::path kRoot{TURNSTILE_SOURCE_DIR};
const fs::path kFolder = kRoot / "compose/kubernetes";

/// As the YAML of Kubernetes: a scalar in quotes is a text.
Json to_json(const YAML::Node& node) {
  if (node.IsNull()) return nullptr;
  if (node.IsSequence()) {
    Json list = Json::array();
    for (const auto& one : node) list.push_back(to_json(one));
    return list;
  }
  if (node.IsMap()) {
    Json map = Json::object();
    for (const auto& pair : node) map[pair.first.as<std::string>()] = to_json(pair.second);
    return map;
  }
  const std::string text = node.Scalar();
  if (node.Tag() == "!") return text;
  if (text == "true" || text == "false") return text == "true";
  static const std::regex number("-?[0-9]+(\\.[0-9]+)?");
  return std::regex_match(text, number) ? Json::parse(text) : Json(text);
}

std::vector<Json> documents(const std::string& file) {
  std::vector<Json> all;
  for (const YAML::Node& node : YAML::LoadAllFromFile((kFolder / file).string())) all.push_back(to_json(node));
  return all;
}

Json document(const std::string& file, const std::string& kind) {
  for (Json& one : documents(file)) {
    if (one["kind"] == kind) return one;
  }
  ADD_FAILURE() << file << ": no " << kind;
  return {};
}

/// The part of JSON Schema that the schemas use. A member that the schema does not name is a problem.
class Validator {
 public:
  explicit Validator(Json definitions) : definitions_(std::move(definitions)) {}

  std::vector<std::string> problems(const Json& value, const Json& schema) {
    found_.clear();
    check(value, schema, "");
    return found_;
  }
  [[nodiscard]] const Json& definition(const std::string& name) const { return definitions_.at(name); }

 private:
  static bool has_type(const Json& value, const std::string& type) {
    if (type == "object") return value.is_object();
    if (type == "array") return value.is_array();
    if (type == "string") return value.is_string();
    if (type == "integer") return value.is_number_integer();
    if (type == "number") return value.is_number();
    if (type == "boolean") return value.is_boolean();
    return type == "null" && value.is_null();
  }
  static bool has_one_of_the_types(const Json& value, const Json& type) {
    if (type.is_string()) return has_type(value, type);
    return std::any_of(type.begin(), type.end(), [&](const Json& one) { return has_type(value, one); });
  }

  void check(const Json& value, const Json& schema, const std::string& at) {
    if (schema.contains("$ref")) check(value, definition(schema["$ref"]), at);
    if (schema.contains("oneOf")) {
      const auto fits = [&](const Json& one) { return Validator(definitions_).problems(value, one).empty(); };
      if (std::count_if(schema["oneOf"].begin(), schema["oneOf"].end(), fits) != 1) add(at, "fits no form");
    }
    if (schema.contains("type") && !has_one_of_the_types(value, schema["type"]))
      return add(at, "is not of type " + schema["type"].dump());
    if (schema.contains("enum") &&
        std::find(schema["enum"].begin(), schema["enum"].end(), value) == schema["enum"].end())
      add(at, "is none of " + schema["enum"].dump());
    for (const Json& name : schema.value("required", Json::array())) {
      if (!value.contains(name)) add(at, "lacks " + name.get<std::string>());
    }
    if (value.is_array() && schema.contains("items")) {
      for (std::size_t i = 0; i < value.size(); ++i)
        check(value[i], schema["items"], at + "[" + std::to_string(i) + "]");
    }
    if (value.is_object()) members(value, schema, at);
  }

  void members(const Json& value, const Json& schema, const std::string& at) {
    const Json known = schema.value("properties", Json::object());
    const Json other = schema.value("additionalProperties", Json(known.empty()));
    for (const auto& [name, member] : value.items()) {
      if (known.contains(name)) check(member, known[name], at + "." + name);
      else if (other.is_object()) check(member, other, at + "." + name);
      else if (other == false && !schema.contains("$ref")) add(at + "." + name, "is not in the schema");
    }
  }

  void add(const std::string& at, const std::string& why) { found_.push_back(at + ": " + why); }

  const Json definitions_;
  std::vector<std::string> found_;
};

std::vector<std::string> problems_of(const Json& manifest) {
  static const std::map<std::string, std::string> kinds{
      {"Deployment", "io.k8s.api.apps.v1.Deployment"},
      {"ConfigMap", "io.k8s.api.core.v1.ConfigMap"},
      {"PodDisruptionBudget", "io.k8s.api.policy.v1.PodDisruptionBudget"},
      {"NetworkPolicy", "io.k8s.api.networking.v1.NetworkPolicy"}};
  const fs::path schemas = kRoot / "tests/support/kubernetes-schemas";
  static Validator kubernetes(Json::parse(test::read_file(schemas / "kubernetes-1.31.json")));
  static const Json keda = Json::parse(test::read_file(schemas / "keda-2.17.json"));
  const std::string kind = manifest.value("kind", "");
  if (kind == "ScaledObject") return Validator(Json::object()).problems(manifest, keda);
  if (!kinds.contains(kind)) return {"its kind is unknown: " + kind};
  return kubernetes.problems(manifest, kubernetes.definition(kinds.at(kind)));
}

TEST(Kubernetes, manifests_fit_their_schemas) {
  std::multiset<std::string> kinds;
  for (const char* file : {"deployment.yaml", "scaledobject.yaml"}) {
    for (const Json& manifest : documents(file)) {
      kinds.insert(manifest["kind"].get<std::string>());
      EXPECT_THAT(problems_of(manifest), IsEmpty()) << file;
    }
  }
  EXPECT_THAT(kinds, ElementsAre("ConfigMap", "Deployment", "NetworkPolicy", "PodDisruptionBudget", "ScaledObject"));
}

/// The validator finds what it is for.
TEST(Kubernetes, a_manifest_that_does_not_fit_is_found) {
  const auto broken = [](const char* kind, const std::function<void(Json&)>& change) {
    Json manifest = document(kind == std::string("ScaledObject") ? "scaledobject.yaml" : "deployment.yaml", kind);
    change(manifest);
    return problems_of(manifest);
  };
  const auto container = [](Json& manifest) -> Json& { return manifest["spec"]["template"]["spec"]["containers"][0]; };
  EXPECT_THAT(broken("Deployment", [&](Json& m) { container(m)["livenesProbe"] = Json::object(); }),
              ElementsAre(".spec.template.spec.containers[0].livenesProbe: is not in the schema"));
  EXPECT_THAT(broken("Deployment", [&](Json& m) { m["spec"].erase("selector"); }),
              ElementsAre(".spec: lacks selector"));
  EXPECT_THAT(broken("Deployment", [&](Json& m) { m["apiVersion"] = "v1"; }).size(), 1U);
  EXPECT_THAT(broken("Deployment", [&](Json& m) { container(m)["env"][0]["value"] = 8; }).size(), 1U)
      << "a number that needs quotes";
  EXPECT_THAT(broken("Deployment", [&](Json& m) { container(m)["livenessProbe"]["httpGet"]["port"] = true; }).size(),
              1U);
  EXPECT_THAT(broken("ScaledObject", [](Json& m) { m["spec"]["maxReplicas"] = 6; }),
              ElementsAre(".spec.maxReplicas: is not in the schema"));
  EXPECT_THAT(broken("ScaledObject", [](Json& m) { m["spec"]["triggers"][0]["metadata"]["threshold"] = 1; }).size(), 1U)
      << "KEDA's metadata are texts";
  EXPECT_THAT(broken("ScaledObject", [](Json& m) { m["spec"].erase("triggers"); }),
              ElementsAre(".spec: lacks triggers"));
}

Json pod() { return document("deployment.yaml", "Deployment")["spec"]["template"]["spec"]; }

Config settings() {
  const Json map = document("deployment.yaml", "ConfigMap");
  const auto environment = [](std::string_view name) -> std::optional<std::string> {
    if (name == "TURNSTILE_POSTGRES_URL") return "postgresql://payments/app";
    return std::nullopt;
  };
  return Config::parse(map["data"]["turnstile.toml"].get<std::string>(), "turnstile.toml", environment);
}

TEST(Kubernetes, the_grace_period_is_enough_for_a_drain) {
  const Json deployed = pod();
  const std::chrono::seconds pre_stop(deployed["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]);
  const std::chrono::seconds grace(deployed["terminationGracePeriodSeconds"]);
  // docs/operations/deploy.md: handlers that do not return, Kafka, and spans.
  using namespace std::chrono_literals;
  EXPECT_GE(grace, pre_stop + settings().consumer.drain_timeout + 3s + 20s + 2s);
}

TEST(Kubernetes, the_probes_and_the_environment_are_those_of_the_program) {
  const Json container = pod()["containers"][0];
  EXPECT_EQ(container["livenessProbe"]["httpGet"]["path"], "/healthz");
  EXPECT_EQ(container["readinessProbe"]["httpGet"]["path"], "/readyz");
  const auto admin = settings().admin.address();
  ASSERT_TRUE(admin);
  EXPECT_EQ(container["ports"][0]["containerPort"], admin->port);
  for (const Json& variable : container["env"])
    EXPECT_TRUE((std::set<std::string>{"TURNSTILE_POSTGRES_URL"}.contains(variable["name"]))) << variable;
  const Json labels = document("deployment.yaml", "Deployment")["spec"]["template"]["metadata"]["labels"];
  for (const char* kind : {"PodDisruptionBudget", "NetworkPolicy"}) {
    const Json spec = document("deployment.yaml", kind)["spec"];
    const Json& selector = spec.contains("selector") ? spec["selector"] : spec["podSelector"];
    for (const auto& [name, value] : selector["matchLabels"].items())
      EXPECT_EQ(labels.value(name, ""), value.get<std::string>()) << kind;
  }
}

Json scaled() { return document("scaledobject.yaml", "ScaledObject")["spec"]; }

TEST(Kubernetes, scales_the_deployment_by_metrics_that_exist) {
  const Json spec = scaled();
  EXPECT_EQ(spec["scaleTargetRef"]["name"], document("deployment.yaml", "Deployment")["metadata"]["name"]);
  EXPECT_GE(spec["minReplicaCount"], 1) << "the lag is a metric of the consumers";
  const std::string page = test::read_file(kRoot / "docs/operations/monitoring.md");
  const std::string query = spec["triggers"][0]["metadata"]["query"];
  static const std::regex name("\\b(turnstile_[a-z_]+)");
  int names = 0;
  for (std::sregex_iterator it(query.begin(), query.end(), name), end; it != end; ++it, ++names)
    EXPECT_THAT(page, HasSubstr("| `" + (*it)[1].str() + "{")) << query;
  EXPECT_GE(names, 3);
  const std::string workers = "/ " + std::to_string(settings().consumer.workers);
  EXPECT_THAT(query, HasSubstr(workers)) << "the permits that keep one process busy";
  std::smatch topic;
  const std::string compose = test::read_file(kRoot / "compose/compose.yaml");
  ASSERT_TRUE(std::regex_search(compose, topic, std::regex("payments:(\\d+) ")));
  EXPECT_EQ(spec["maxReplicaCount"], std::stoi(topic[1])) << "the partitions that compose.yaml creates";
}

/// One case of the query: the samples, and the number of processes that it asks for.
struct Case {
  const char* name;
  int lag, in_use, limit;
  double processes;
};

TEST(Kubernetes, promtool_gets_the_processes_that_are_needed) {
  if (std::system("command -v promtool >/dev/null 2>&1") != 0)
    GTEST_SKIP() << "no promtool: apt-get install prometheus";
  // Three processes, with 2 of the 6 partitions each.
  const std::vector<Case> cases{{"idle", 0, 0, 32, 0},
                                {"all_permits_of_two_processes_are_in_use", 0, 16, 32, 2},
                                {"a_lag_adds_processes", 1'800, 8, 32, 2.8},
                                {"a_lag_beyond_what_the_limit_keeps_busy", 100'000, 32, 32, 4},
                                {"a_lower_limit", 100'000, 16, 16, 2},
                                {"a_paused_limit", 100'000, 0, 0, 0},
                                {"no_more_than_partitions", 100'000, 64, 640, 6}};
  std::string folder = (fs::temp_directory_path() / "promtool-XXXXXX").string();
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const std::string query = scaled()["triggers"][0]["metadata"]["query"];
  std::ofstream(folder + "/rules.yml") << Json{
      {"groups", {{{"name", "scale"}, {"rules", {{{"record", "processes"}, {"expr", query}}}}}}}};
  Json tests = Json::array();
  for (const Case& one : cases) {
    Json series = Json::array();
    const auto add = [&](const std::string& name, double value) {
      series.push_back({{"series", name}, {"values", Json(value).dump() + "+0x20"}});
    };
    for (int process = 0; process < 3; ++process) {
      const std::string instance = "instance=\"" + std::to_string(process) + "\"";
      add("turnstile_limiter_limit_permits{limiter=\"accounts\"," + instance + "}", one.limit);
      add("turnstile_limiter_in_use_permits{limiter=\"accounts\"," + instance + "}", one.in_use / 3.0);
      for (int partition : {2 * process, 2 * process + 1})
        add("turnstile_partition_lag_messages{topic=\"payments\",partition=\"" + std::to_string(partition) + "\"," +
                instance + "}",
            one.lag / 6.0);
    }
    tests.push_back({{"name", one.name},
                     {"interval", "15s"},
                     {"input_series", series},
                     {"promql_expr_test",
                      {{{"expr", "round(processes, 0.001)"},
                        {"eval_time", "4m"},
                        {"exp_samples", {{{"labels", "{}"}, {"value", one.processes}}}}}}}});
  }
  std::ofstream(folder + "/tests.yml") << Json{
      {"rule_files", {"rules.yml"}}, {"evaluation_interval", "15s"}, {"tests", tests}};
  const std::string run =
      "cd " + folder + " && promtool check rules rules.yml >out 2>&1 && promtool test rules tests.yml >>out 2>&1";
  EXPECT_EQ(std::system(run.c_str()), 0) << test::read_file(folder + "/out");
  fs::remove_all(folder);
}

/// docs/operations/deploy.md: the commands, with a kubectl that only looks whether the files are there.
TEST(Kubernetes, the_commands_of_the_page_name_what_is_there) {
  const std::string page = test::read_file(kRoot / "docs/operations/deploy.md");
  std::smatch block;
  ASSERT_TRUE(std::regex_search(page, block, std::regex("```sh kubernetes\n([^`]*)```")));
  std::string folder = (fs::temp_directory_path() / "kubectl-XXXXXX").string();
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  std::ofstream(folder + "/kubectl") << "#!/bin/sh\n"
                                        "echo \"$@\" >>\"$0.log\"\n"
                                        "while [ $# -gt 0 ]; do\n"
                                        "  if [ \"$1\" = -f ]; then ls \"$2\" >/dev/null || exit 1; fi\n"
                                        "  shift\n"
                                        "done\n";
  fs::permissions(folder + "/kubectl", fs::perms::owner_all);
  std::ofstream(folder + "/commands.sh") << block[1].str();
  const std::string run = "cd " + kRoot.string() + " && PATH=" + folder + ":$PATH bash -eu " + folder +
                          "/commands.sh >" + folder + "/out 2>&1";
  EXPECT_EQ(std::system(run.c_str()), 0) << test::read_file(folder + "/out");
  const std::string log = test::read_file(folder + "/kubectl.log");
  EXPECT_THAT(log, HasSubstr("apply -f compose/kubernetes"));
  for (const char* kind : {"deployment", "scaledobject"}) EXPECT_THAT(log, HasSubstr(std::string(kind) + "/payments"));
  fs::remove_all(folder);
}

}  // namespace
}  // namespace turnstile
