#pragma once
// Reads files of the source tree, for tests of texts.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace turnstile::test {

/// Fails the test if it cannot read the file.
inline std::string read_file(const std::filesystem::path& file) {
  std::ifstream in{file};
  EXPECT_TRUE(in) << file << ": cannot be read";
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

}  // namespace turnstile::test
