#include "config/suggest.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <array>
#include <string>

namespace turnstile {
namespace {

constexpr std::array<std::string_view, 5> keys{"limit", "limiter", "handler", "handler_timeout", "retry.attempts"};

TEST(SuggestTest, a_slip_is_understood) {
  EXPECT_EQ(suggest("limmit", keys), "limit");  // added
  EXPECT_EQ(suggest("lmit", keys), "limit");    // left out
  EXPECT_EQ(suggest("linit", keys), "limit");   // mistaken
  EXPECT_EQ(suggest("ilmit", keys), "limit");   // swapped
  EXPECT_EQ(suggest("LIMIT", keys), "limit");   // case
  EXPECT_EQ(suggest("handler-timeout", keys), "handler_timeout");
  EXPECT_EQ(suggest("retry_attemts", keys), "retry.attempts");
}

TEST(SuggestTest, the_nearest_wins) { EXPECT_EQ(suggest("limite", keys), "limit"); }

TEST(SuggestTest, what_is_far_from_all_gets_no_answer) {
  EXPECT_EQ(suggest("workers", keys), std::nullopt);
  EXPECT_EQ(suggest("", keys), std::nullopt);
  EXPECT_EQ(suggest("limit", {}), std::nullopt);
  EXPECT_EQ(suggest(std::string(100'000, 'x'), keys), std::nullopt);
}

RC_GTEST_PROP(SuggestTest, one_wrong_letter_in_a_long_word_is_always_understood, ()) {
  std::string word = "handler_timeout";
  word[*rc::gen::inRange<std::size_t>(0, word.size())] = *rc::gen::inRange('a', '{');
  RC_ASSERT(suggest(word, keys) == "handler_timeout");
}

}  // namespace
}  // namespace turnstile
