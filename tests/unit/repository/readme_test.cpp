// README.md quotes code that is compiled, names settings and verbs that exist, and links to files that are there. The quickstart's
// blocks are also run, by tests/package/run.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "cli/src/exit_code.hpp"
#include "config/keys.hpp"
#include "tests/support/read_file.hpp"
#include "tokens/snapshot.hpp"
#include "tokens/wire.hpp"

namespace {

namespace fs = std::filesystem;

const fs::path root{TURNSTILE_SOURCE_DIR};

using turnstile::test::read_file;

const std::string& readme() {
  static const std::string text = read_file(root / "README.md");
  return text;
}

// A fenced block: ```LANGUAGE MARK, as in ```cpp quickstart main.cpp or ```cpp from examples/payments/main.cpp.
struct Block {
  std::string language;
  std::string mark;
  std::string file;
  std::string text;
  int line = 0;
};

std::vector<Block> blocks() {
  std::vector<Block> all;
  std::istringstream in{readme()};
  bool inside = false;
  int number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (!line.starts_with("```")) {
      if (inside) all.back().text += line + '\n';
      continue;
    }
    inside = !inside;
    if (!inside) continue;
    Block block;
    std::istringstream words{line.substr(3)};
    words >> block.language >> block.mark >> block.file;
    block.line = number;
    all.push_back(std::move(block));
  }
  EXPECT_FALSE(inside) << "a fence is not closed";
  return all;
}

// One line of code, shown at the top, need not be a whole file: all else must be compiled somewhere.
bool is_one_line(const Block& block) { return block.text.find('\n') == block.text.size() - 1; }

TEST(Readme, quotes_code_that_is_compiled) {
  int quoted = 0;
  for (const auto& block : blocks()) {
    if (block.mark == "quickstart" && block.file != "run.sh") {
      EXPECT_EQ(block.text, read_file(root / "examples/quickstart" / block.file)) << "README.md:" << block.line;
      ++quoted;
    } else if (block.mark == "from") {
      EXPECT_NE(read_file(root / block.file).find(block.text), std::string::npos)
          << "README.md:" << block.line << ": this is not in " << block.file << ":\n"
          << block.text;
      ++quoted;
    } else if (block.language == "cpp") {
      EXPECT_TRUE(is_one_line(block)) << "README.md:" << block.line << ": say where this is compiled: ```cpp from FILE";
    }
  }
  EXPECT_GE(quoted, 5);
}

// A program that takes each message once, with a limit and retries, and its settings.
TEST(Readme, has_a_quickstart_of_one_screen) {
  int lines = 0;
  for (const auto& block : blocks()) {
    if (block.mark == "quickstart" && block.file != "run.sh")
      lines += static_cast<int>(std::count(block.text.begin(), block.text.end(), '\n'));
  }
  EXPECT_GT(lines, 20) << "the blocks were not found";
  EXPECT_LE(lines, 50);
}

TEST(Readme, links_to_files_that_are_there) {
  for (const auto* page :
       {"README.md", "compose/README.md", "examples/quickstart/README.md", "examples/payments/README.md",
        "examples/own_poll_loop/README.md", "examples/limited_calls/README.md", "examples/ways/README.md",
        "examples/charge_form/README.md", "docs/internals/architecture.md", "CONTRIBUTING.md", "SECURITY.md"}) {
    const auto text = read_file(root / page);
    const std::regex link{R"(\]\(([^)# ]+)(#[^)]*)?\))"};
    for (std::sregex_iterator at{text.begin(), text.end(), link}, end; at != end; ++at) {
      const auto target = (*at)[1].str();
      if (target.starts_with("http")) continue;
      EXPECT_TRUE(fs::exists((root / page).parent_path() / target)) << page << ": " << target;
    }
  }
}

bool names(const std::string& key) { return readme().find('`' + key + '`') != std::string::npos; }

TEST(Readme, names_every_setting) {
  for (const auto& key : turnstile::postgres_keys())
    EXPECT_TRUE(names(std::string{key.name})) << "[postgres] " << key.name;
  for (const auto& key : turnstile::consumer_keys())
    EXPECT_TRUE(names(std::string{key.name})) << "[consumer] " << key.name;
  for (const auto& key : turnstile::limits_keys()) EXPECT_TRUE(names(std::string{key.name})) << "[limits] " << key.name;
  for (const auto& key : turnstile::log_keys()) EXPECT_TRUE(names(std::string{key.name})) << "[log] " << key.name;
  for (const auto& key : turnstile::topic_keys()) {
    const std::string name{key.name};
    EXPECT_TRUE(names(name.substr(0, name.find('.')))) << "[topics.NAME] " << name;
  }
}

// "about 50 bytes, and 25 more for each further limiter"
TEST(Readme, says_how_much_a_member_says) {
  using namespace turnstile::tokens;
  const auto keep_of = [](int limiters) {
    Keep keep;
    for (int i = 0; i < limiters; ++i)
      keep.lines.push_back(
          {.limiter = "psp-" + std::to_string(i), .limit = 64, .wants = 16, .busy = 12, .given_back = 100'000});
    return encode({.member = ~MemberId{0}, .epoch = 1, .seq = 100'000, .body = keep}).size();
  };
  EXPECT_NEAR(static_cast<double>(keep_of(1)), 50, 10);
  EXPECT_NEAR(static_cast<double>(keep_of(11) - keep_of(1)) / 10, 25, 5);
}

// "1,000 processes with 10 limiters make 0.4 MB"
TEST(Readme, says_how_large_a_domain_may_be) {
  using namespace turnstile::tokens;
  State state;
  Position position = 100'000'000;
  for (MemberId id = 1; id <= 1'000; ++id) {
    const MemberId member = id * 0x9e3779b97f4a7c15;
    apply(state, ++position,
          {.member = member,
           .epoch = 1,
           .seq = 1,
           .body = Joined{.host = "host-4711.example.net", .pid = 4'711, .client = "payments", .lease_ms = 10'000}});
    Keep keep;
    for (int i = 0; i < 10; ++i)
      keep.lines.push_back({.limiter = "psp-" + std::to_string(i), .limit = 5'000, .wants = 5});
    apply(state, ++position, {.member = member, .epoch = 1, .seq = 2, .body = keep});
  }
  ASSERT_EQ(state.members.size(), 1'000U);
  ASSERT_EQ(state.limiters.at("psp-0").held(), 5'000U);
  EXPECT_NEAR(static_cast<double>(save(state).size()), 0.4e6, 0.05e6);
}

TEST(Readme, names_every_decorator) {
  const auto header = read_file(root / "framework/include/turnstile/decorators.hpp");
  const std::regex factory{R"(\n(?:inline )?auto ([a-z_]+)\()"};
  int found = 0;
  for (std::sregex_iterator at{header.begin(), header.end(), factory}, end; at != end; ++at) {
    EXPECT_NE(readme().find("| `" + (*at)[1].str() + '('), std::string::npos)
        << (*at)[1] << " is not in the table of decorators";
    ++found;
  }
  EXPECT_GE(found, 12);
}

TEST(Readme, names_every_exit_code) {
  // "  3  Kafka or PostgreSQL cannot be reached…"
  const std::string codes = turnstile::cli::kExitCodes;
  const std::regex line{R"(\n  ([0-9])  ([A-Za-z]+))"};
  int found = 0;
  for (std::sregex_iterator at{codes.begin(), codes.end(), line}, end; at != end; ++at) {
    EXPECT_TRUE(std::regex_search(readme(), std::regex{"[ \n]" + (*at)[1].str() + " " + (*at)[2].str()})) << (*at)[0];
    ++found;
  }
  EXPECT_EQ(found, 5);
}

}  // namespace
