#pragma once
// Runs the commands of a page of the documentation as they are written there.

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <sstream>
#include <string>

#include "tests/support/cli.hpp"
#include "tests/support/read_file.hpp"

namespace turnstile::test {

/// Runs each block marked ```sh run in the folder and the environment of `cli`, and returns how many there were. A block
/// marked ```sh run fails must end with exit code 2, and each other one with 0. `topic` stands for the page's topic,
/// payments.
inline int run_page(Cli& cli, const std::string& page, const std::string& topic) {
  std::istringstream lines(read_file(TURNSTILE_SOURCE_DIR "/docs/" + page));
  const auto script = cli.folder().path() / "block.sh", output = cli.folder().path() / "block.log";
  std::string block;
  int blocks = 0, expected = -1;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("```sh run")) {
      expected = line == "```sh run fails" ? 2 : 0;
      block.clear();
    } else if (line == "```" && expected >= 0) {
      for (std::size_t at = 0; (at = block.find("payments", at)) != std::string::npos; at += topic.size())
        block.replace(at, 8, topic);
      std::string head = "set -eu\ncd " + cli.folder().path().string() + "\nPATH=" TURNSTILE_BIN_DIR ":$PATH\n";
      for (const auto& [name, value] : cli.environment()) head += "export " + name + "='" + value + "'\n";
      cli.folder().write("block.sh", head + block);
      const int status = std::system(("bash " + script.string() + " > " + output.string() + " 2>&1").c_str());
      EXPECT_EQ(WEXITSTATUS(status), expected) << block << read_file(output);
      expected = -1;
      ++blocks;
    } else if (expected >= 0) {
      block += line + '\n';
    }
  }
  return blocks;
}

}  // namespace turnstile::test
