// examples/ways as its users run it: two processes, every way to pay exactly once, and the two ways that do not ensure
// that.

#include <gtest/gtest.h>

#include <fstream>
#include <optional>
#include <sstream>

#include "tests/support/cli.hpp"
#include "tests/support/postgres_schema.hpp"
#include "tests/support/process.hpp"

namespace turnstile::test {
namespace {

int occurrences(const std::string& text, const std::string& what) {
  int found = 0;
  for (auto at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++found;
  return found;
}

TEST(Ways, the_right_ones_hold_over_two_processes_and_the_wrong_ones_do_not) {
  if (!postgres_url()) GTEST_SKIP() << kNoPostgres;
  const TemporaryFolder folder;
  const std::string output = folder.path() / "output";
  Process ways(std::string(TURNSTILE_BIN_DIR) + "/ways", {}, {{"TURNSTILE_POSTGRES_URL", *postgres_url()}}, output);
  const std::optional<int> code = ways.wait(std::chrono::seconds(120));
  std::ostringstream text;
  text << std::ifstream(output).rdbuf();
  EXPECT_EQ(code, 0) << text.str();
  EXPECT_EQ(occurrences(text.str(), "  right\n"), 6) << text.str();
  EXPECT_EQ(occurrences(text.str(), "  WRONG\n"), 2) << text.str();
}

}  // namespace
}  // namespace turnstile::test
