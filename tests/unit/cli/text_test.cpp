// Names and payloads as the command line shows them on a terminal.

#include "cli/src/text.hpp"

#include <gtest/gtest.h>

#include <cstdint>

namespace turnstile::cli {
namespace {

TEST(OneLine, has_nothing_that_a_terminal_executes) {
  EXPECT_EQ(one_line("a\x1b[2J\r\n\tb\xc2\x9b", SIZE_MAX), "a [2J   b ");
  EXPECT_EQ(one_line("\xff", SIZE_MAX), "?");
  EXPECT_EQ(one_line("übung", 2), "üb…");
}

/// They could show "exe.txt" for "txt.exe".
TEST(OneLine, keeps_the_direction_of_the_text) {
  for (const char* control : {"\u202a", "\u202b", "\u202c", "\u202d", "\u202e", "\u2066", "\u2067", "\u2068", "\u2069"})
    EXPECT_EQ(one_line(std::string("a") + control + "b", SIZE_MAX), "a b");
  EXPECT_EQ(one_line("\u2029\u2065\u206a\u202f", SIZE_MAX), "\u2029\u2065\u206a\u202f");
  EXPECT_TRUE(is_text("a\u202eb")) << "JSON has it unchanged";
}

}  // namespace
}  // namespace turnstile::cli
