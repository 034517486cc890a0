// Words for sh in the commands that logs, errors and the command line print.

#include "turnstile/shell.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstdio>

namespace turnstile::text {
namespace {

/// What sh makes of the word.
std::string read_by_sh(const std::string& word) {
  std::FILE* pipe = popen(("printf %s " + word).c_str(), "r");
  std::array<char, 4096> buffer{};
  const auto size = std::fread(buffer.data(), 1, buffer.size(), pipe);
  EXPECT_EQ(pclose(pipe), 0);
  return {buffer.data(), size};
}

TEST(ShellWord, is_what_sh_reads_as_the_text) {
  for (const std::string text : {"plain-1.2", "a b; rm -rf /", "it's", "$HOME `id` \"x\" \\ %s", "k\x1b[2J",
                                 "\xff\xfe%d\\", "two\nlines", "übung", "\xe2\x80\xaeright to left"}) {
    const auto word = shell_word(text);
    ASSERT_TRUE(word) << text;
    EXPECT_EQ(read_by_sh(*word), text) << *word;
    for (const char c : *word) EXPECT_GE(static_cast<unsigned char>(c), 0x20) << *word;
  }
  EXPECT_EQ(shell_word("plain-1.2"), "plain-1.2");
  EXPECT_EQ(shell_word("a b"), "'a b'");
  EXPECT_EQ(shell_word(""), "''");
  EXPECT_EQ(shell_word(std::string_view("a\0b", 3)), std::nullopt);
  EXPECT_EQ(shell_word("a\n"), std::nullopt);
}

TEST(ShellWord, is_no_option_behind_the_mark) {
  EXPECT_EQ(shell_operand("a b", "NAME"), "'a b'");
  EXPECT_EQ(shell_operand("--help", "NAME"), "-- --help");
  EXPECT_EQ(shell_operand("-x y", "NAME"), "-- '-x y'");
  EXPECT_EQ(shell_operand(std::string_view("a\0b", 3), "NAME"), "NAME");
  EXPECT_EQ(shell_option("--handler", "a b", "NAME"), "--handler 'a b'");
  EXPECT_EQ(shell_option("--handler", "-1", "NAME"), "--handler=-1");
  EXPECT_EQ(shell_option("--handler", std::string_view("a\0b", 3), "NAME"), "--handler NAME");
}

}  // namespace
}  // namespace turnstile::text
