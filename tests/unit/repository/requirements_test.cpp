// REQUIREMENTS.md has a row for all that was asked for, and the tests that it names exist.

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/read_file.hpp"
#include "tests/unit/repository/root.hpp"

namespace {

namespace fs = std::filesystem;

using turnstile::test::read_file;

/// "Suite.name" of each test under a folder.
std::set<std::string> tests_in(const std::string& folder) {
  static const std::regex test(R"(^(?:TEST|TEST_F|TEST_P|RC_GTEST_PROP)\((\w+), (\w+)[,)])");
  std::set<std::string> names;
  for (const auto& entry : fs::recursive_directory_iterator(root / "tests" / folder)) {
    if (entry.path().extension() != ".cpp") continue;
    std::istringstream lines(read_file(entry.path()));
    for (std::string line; std::getline(lines, line);) {
      std::smatch found;
      if (std::regex_search(line, found, test)) names.insert(found[1].str() + "." + found[2].str());
    }
  }
  return names;
}

/// The cell of tests in each row, by the row's name.
std::map<std::string, std::string> rows() {
  static const std::regex row(R"(^\| ([A-E]\d+) \|.*\| ([^|]*) \|$)");
  std::map<std::string, std::string> rows;
  std::istringstream lines(read_file(root / "REQUIREMENTS.md"));
  for (std::string line; std::getline(lines, line);) {
    std::smatch found;
    if (std::regex_match(line, found, row)) rows[found[1]] = found[2];
  }
  return rows;
}

TEST(Requirements, have_a_row_each) {
  std::set<std::string> named, asked;
  for (const auto& [name, tests] : rows()) named.insert(name);
  const std::map<char, int> count{{'A', 10}, {'B', 6}, {'C', 9}, {'D', 8}, {'E', 5}};
  for (const auto& [letter, most] : count) {
    for (int i = 1; i <= most; ++i) asked.insert(letter + std::to_string(i));
  }
  EXPECT_EQ(named, asked);
}

TEST(Requirements, name_tests_that_exist) {
  const std::map<std::string, std::set<std::string>> known{
      {"unit", tests_in("unit")}, {"contract", tests_in("contract")}, {"integration", tests_in("integration")}};
  static const std::regex word(R"((unit|contract|integration) |`(\w+\.\w+)`)");
  for (const auto& [row, tests] : rows()) {
    std::string folder;
    int on_real_parts = 0, on_kafka = 0;
    for (std::sregex_iterator at(tests.begin(), tests.end(), word), end; at != end; ++at) {
      if ((*at)[1].matched) {
        folder = (*at)[1];
        continue;
      }
      ASSERT_FALSE(folder.empty()) << row << ": say where " << (*at)[2] << " is: unit, contract or integration";
      EXPECT_TRUE(known.at(folder).contains((*at)[2])) << row << ": there is no " << folder << " test " << (*at)[2];
      if (folder != "unit") ++on_real_parts;
      if (folder == "integration") ++on_kafka;
    }
    const bool of_the_text_alone = row == "D1" || row == "D6";
    EXPECT_TRUE(on_real_parts > 0 || of_the_text_alone) << row << ": nothing shows it on a real server";
    static const std::set<std::string> of_messages{"A2", "A3", "A5", "A9", "B1", "B2", "B3", "B4", "B5",
                                                   "B6", "C8", "D4", "D8", "E1", "E3", "E4", "E5"};
    EXPECT_TRUE(on_kafka > 0 || !of_messages.contains(row)) << row << ": nothing shows it on Apache Kafka";
  }
}

}  // namespace
