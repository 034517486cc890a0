// The demo as a new user runs it, on the embedded broker: with few records, with many records, with a step that takes
// too long, and interrupted.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/cli.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/postgres_schema.hpp"
#include "tests/support/process.hpp"

namespace turnstile::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class Demo : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(program())) GTEST_SKIP() << "built without the demo (TURNSTILE_DEMO)";
    if (!postgres_url()) GTEST_SKIP() << kNoPostgres;
  }

  /// One run, with a folder of its own for the files that it leaves behind.
  struct Run {
    explicit Run(std::vector<std::string> arguments) {
      arguments.insert(arguments.end(), {"--postgres", postgres_url().value_or("")});
      process.emplace(program(), arguments, std::map<std::string, std::string>{{"TMPDIR", folder.path()}}, output());
    }
    [[nodiscard]] std::string output() const { return folder.path() / "output"; }
    [[nodiscard]] std::string text() const {
      std::ostringstream text;
      text << std::ifstream(output()).rdbuf();
      return text.str();
    }
    /// The number of files and folders beside the output.
    [[nodiscard]] int left_behind() const {
      int found = -1;
      for (const auto& entry : std::filesystem::directory_iterator(folder.path())) found += entry.exists() ? 1 : 0;
      return found;
    }
    [[nodiscard]] std::string schema() const { return "turnstile_demo_" + std::to_string(process->pid()); }

    TemporaryFolder folder;
    std::optional<Process> process;
  };

  static std::string program() { return std::string(TURNSTILE_BIN_DIR) + "/turnstile_demo"; }
  static bool is_there(const std::string& schema) {
    return Sql(*postgres_url()).one("SELECT count(*) FROM pg_namespace WHERE nspname = '" + schema + "'") != "0";
  }
};

/// The runs happen at the same time. They share nothing except the server.
TEST_F(Demo, tells_its_story_with_any_number_of_messages) {
  std::vector<std::unique_ptr<Run>> runs;
  for (const char* messages : {"300", "4000", "10000"})
    runs.push_back(std::make_unique<Run>(std::vector<std::string>{"--messages", messages}));
  for (const auto& run : runs) {
    EXPECT_EQ(run->process->wait(std::chrono::seconds(120)), 0) << run->text();
    EXPECT_THAT(run->text(), AllOf(HasSubstr("paid twice:"), HasSubstr("8. The operator takes that back"),
                                   HasSubstr("Every check passed"), Not(HasSubstr("WRONG"))));
    EXPECT_EQ(run->left_behind(), 0);
    EXPECT_FALSE(is_there(run->schema()));
  }
}

TEST_F(Demo, refuses_numbers_of_messages_that_cannot_show_the_story) {
  for (const char* messages : {"299", "100001", "many"}) {
    Run run({"--messages", messages});
    EXPECT_NE(run.process->wait(std::chrono::seconds(20)).value_or(0), 0) << messages;
    EXPECT_THAT(run.text(), HasSubstr(std::string(messages) + " is not a number from 300 to 100000")) << messages;
  }
}

/// The first rebalance of the embedded broker takes 3 s.
TEST_F(Demo, ends_with_what_it_saw_where_a_step_takes_too_long) {
  Run run({"--timeout", "1"});
  EXPECT_EQ(run.process->wait(std::chrono::seconds(30)), 1);
  EXPECT_THAT(run.text(), AllOf(HasSubstr("gave up after waiting 1 s for the plain consumers to share the partitions"),
                                HasSubstr("plain consumer 1 (process "), HasSubstr("The consumers' logs are in "),
                                HasSubstr("--timeout 3")));
  EXPECT_EQ(run.left_behind(), 1) << "the logs";
  EXPECT_FALSE(is_there(run.schema()));
}

TEST_F(Demo, removes_what_it_made_when_it_is_interrupted) {
  Run run({});
  ASSERT_TRUE(eventually([&] { return run.text().find("2. For comparison") != std::string::npos; })) << run.text();
  run.process->signal(SIGINT);
  EXPECT_EQ(run.process->wait(std::chrono::seconds(30)), 130) << run.text();
  EXPECT_EQ(run.left_behind(), 0);
  EXPECT_FALSE(is_there(run.schema()));
}

}  // namespace
}  // namespace turnstile::test
