// docs/internals/hazards.md explains what the sources cite as "hazard: NAME, NAME", and nothing else.

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>

#include "tests/support/read_file.hpp"
#include "tests/unit/repository/root.hpp"

namespace {

namespace fs = std::filesystem;
using turnstile::test::read_file;

/// By name, the first place that cites it ("FILE:LINE").
std::map<std::string, std::string> cited_in(const std::string& file, const std::string& text) {
  static const std::regex citation{R"([Hh]azard: ([a-z0-9-]+(?:, [a-z0-9]+-[a-z0-9-]+)*))"}, name{R"([a-z0-9-]+)"};
  std::map<std::string, std::string> found;
  std::istringstream lines{text};
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    for (std::sregex_iterator at{line.begin(), line.end(), citation}, end; at != end; ++at) {
      const auto names = (*at)[1].str();
      for (std::sregex_iterator each{names.begin(), names.end(), name}; each != end; ++each)
        found.try_emplace(each->str(), file + ":" + std::to_string(number));
    }
  }
  return found;
}

std::map<std::string, std::string> cited() {
  std::map<std::string, std::string> all;
  for (const auto* folder : {"framework", "adapters", "cli", "tests", "examples", "docs"}) {
    for (const auto& entry : fs::recursive_directory_iterator{root / folder}) {
      if (!entry.is_regular_file()) continue;
      const auto& file = entry.path();
      const auto kind = file.extension();
      if (file.filename() == "hazards_test.cpp" || file.filename() == "hazards.md" ||
          (kind != ".hpp" && kind != ".cpp" && kind != ".txt" && kind != ".md"))
        continue;
      all.merge(cited_in(fs::relative(file, root).generic_string(), read_file(file)));
    }
  }
  return all;
}

std::set<std::string> explained() {
  static const std::regex heading{R"(### ([a-z0-9-]+))"};
  std::set<std::string> names;
  std::istringstream lines{read_file(root / "docs/internals/hazards.md")};
  for (std::string line; std::getline(lines, line);) {
    std::smatch match;
    if (std::regex_match(line, match, heading)) names.insert(match[1].str());
  }
  return names;
}

TEST(Hazards, each_that_is_cited_is_explained) {
  const auto known = explained();
  const auto all = cited();
  EXPECT_GT(all.size(), 20U);
  for (const auto& [name, where] : all)
    EXPECT_TRUE(known.contains(name)) << where << ": cites the hazard " << name
                                      << ", which docs/internals/hazards.md does not explain";
}

TEST(Hazards, each_that_is_explained_is_cited) {
  const auto all = cited();
  for (const auto& name : explained())
    EXPECT_TRUE(all.contains(name)) << "docs/internals/hazards.md explains " << name << ", which nothing cites";
}

TEST(Hazards, a_citation_is_found) {
  const auto found =
      cited_in("x.cpp", "// a (hazard: blocked-insert, insert-order) b\n/// Hazard: hot-row. c, hot-cold");
  EXPECT_EQ(found.size(), 3U);
  EXPECT_EQ(found.at("insert-order"), "x.cpp:1");
  EXPECT_EQ(found.at("hot-row"), "x.cpp:2");
}

}  // namespace
