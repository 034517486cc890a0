// What a person reads who writes a handler that is none: the compiler is run on it, with the headers alone.

#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <string>

namespace turnstile {
namespace {

struct Compiled {
  bool accepted = false;
  std::string output;
};

Compiled compile(const std::string& file) {
  const std::string source = TURNSTILE_SOURCE_DIR;
  const std::string command = std::string("LC_ALL=C '") + TURNSTILE_CXX + "' -std=c++20 -fsyntax-only -I'" + source +
                              "/framework/include' '" + source + "/tests/unit/repository/compile_fail/" + file +
                              "' 2>&1";
  Compiled result;
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) throw std::runtime_error("cannot run " + command);
  std::array<char, 4096> buffer{};
  while (const std::size_t read = std::fread(buffer.data(), 1, buffer.size(), pipe))
    result.output.append(buffer.data(), read);
  result.accepted = pclose(pipe) == 0;
  return result;
}

constexpr const char* not_a_handler =
    "turnstile: not a handler. A handler takes (const turnstile::Message&), (const turnstile::Message&, turnstile::Context&), "
    "(std::span<const turnstile::Message>) or (std::span<const turnstile::Message>, turnstile::Context&), and returns "
    "turnstile::Outcome or void";

TEST(HandlerCompileTest, every_shape_of_a_handler_compiles) {
  const Compiled result = compile("good_handlers.cpp");
  EXPECT_TRUE(result.accepted) << result.output;
}

TEST(HandlerCompileTest, a_wrong_argument_is_told_what_a_handler_takes) {
  const Compiled result = compile("wrong_argument.cpp");
  EXPECT_FALSE(result.accepted);
  EXPECT_NE(result.output.find(not_a_handler), std::string::npos) << result.output;
}

TEST(HandlerCompileTest, a_wrong_result_is_told_what_a_handler_returns) {
  const Compiled result = compile("wrong_result.cpp");
  EXPECT_FALSE(result.accepted);
  EXPECT_NE(result.output.find(not_a_handler), std::string::npos) << result.output;
}

TEST(HandlerCompileTest, what_is_no_decorator_is_told_by_the_concept) {
  const Compiled result = compile("not_a_decorator.cpp");
  EXPECT_FALSE(result.accepted);
  EXPECT_NE(result.output.find("Decorator"), std::string::npos) << result.output;
}

}  // namespace
}  // namespace turnstile
