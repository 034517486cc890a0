// The alerts for Prometheus (compose/prometheus/alerts.yml) name metrics that exist, and each has its entry in
// docs/operations/alerts.md. promtool checks the rules themselves: promtool test rules compose/prometheus/alerts_test.yml.

#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include <filesystem>
#include <regex>
#include <set>
#include <string>

#include "tests/support/read_file.hpp"

namespace turnstile {
namespace {

const std::filesystem::path kRepository{TURNSTILE_SOURCE_DIR};

std::set<std::string> all_of(const std::string& text, const std::regex& pattern) {
  std::set<std::string> found;
  for (std::sregex_iterator it(text.begin(), text.end(), pattern), end; it != end; ++it) found.insert((*it)[1]);
  return found;
}

/// Those of the tables in docs/operations/monitoring.md, which a test compares with the metrics of the code, and those that
/// turnstile audit writes.
std::set<std::string> documented() {
  auto names = all_of(test::read_file(kRepository / "docs/operations/monitoring.md") +
                          test::read_file(kRepository / "docs/operations/audit.md"),
                      std::regex("`(turnstile_[a-z_]+)[{`]"));
  for (const std::string& name : std::set(names)) {
    if (!name.ends_with("_seconds") && !name.ends_with("_messages")) continue;
    for (const char* suffix : {"_bucket", "_sum", "_count"}) names.insert(name + suffix);
  }
  return names;
}

TEST(Alerts, name_metrics_that_exist) {
  const auto known = documented();
  ASSERT_GT(known.size(), 30U);
  for (const char* file : {"compose/prometheus/alerts.yml", "compose/grafana/dashboards/turnstile.json"}) {
    const auto used = all_of(test::read_file(kRepository / file), std::regex("\\b(turnstile_[a-z_]*[a-z])\\b"));
    EXPECT_GT(used.size(), 10U) << file;
    for (const auto& name : used) EXPECT_TRUE(known.contains(name)) << file << ": " << name;
  }
}

TEST(Alerts, have_an_entry_each) {
  const YAML::Node rules = YAML::LoadFile((kRepository / "compose/prometheus/alerts.yml").string());
  const auto entries =
      all_of(test::read_file(kRepository / "docs/operations/alerts.md"), std::regex("\\n### ([A-Za-z]+)\\n"));
  std::set<std::string> alerts;
  for (const auto& group : rules["groups"]) {
    for (const auto& rule : group["rules"]) {
      const auto name = rule["alert"].as<std::string>();
      EXPECT_TRUE(alerts.insert(name).second) << name << " comes twice";
      for (const char* annotation : {"summary", "description", "runbook", "command"})
        EXPECT_TRUE(rule["annotations"][annotation]) << name << " has no " << annotation;
      EXPECT_TRUE(rule["labels"]["severity"]) << name;
    }
  }
  EXPECT_EQ(alerts, entries);
}

}  // namespace
}  // namespace turnstile
