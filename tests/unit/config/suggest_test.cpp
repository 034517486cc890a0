#include "config/suggest.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <array>
#include <string>

namespace turnstile::detail {
namespace {

constexpr std::array<std::string_view, 5> kKeys{"limit", "limiter", "handler", "handler_timeout", "retry.attempts"};

TEST(SuggestTest, a_slip_is_understood) {
  EXPECT_EQ(suggest("limmit", kKeys), "limit");  // added
  EXPECT_EQ(suggest("lmit", kKeys), "limit");    // left out
  EXPECT_EQ(suggest("linit", kKeys), "limit");   // mistaken
  EXPECT_EQ(suggest("ilmit", kKeys), "limit");   // swapped
  EXPECT_EQ(suggest("LIMIT", kKeys), "limit");   // case
  EXPECT_EQ(suggest("handler-timeout", kKeys), "handler_timeout");
  EXPECT_EQ(suggest("retry_attemts", kKeys), "retry.attempts");
}

TEST(SuggestTest, the_nearest_wins) { EXPECT_EQ(suggest("limite", kKeys), "limit"); }

TEST(SuggestTest, what_is_far_from_all_gets_no_answer) {
  EXPECT_EQ(suggest("workers", kKeys), std::nullopt);
  EXPECT_EQ(suggest("", kKeys), std::nullopt);
  EXPECT_EQ(suggest("limit", {}), std::nullopt);
  EXPECT_EQ(suggest(std::string(100'000, 'x'), kKeys), std::nullopt);
}

RC_GTEST_PROP(SuggestTest, one_wrong_letter_in_a_long_word_is_always_understood, ()) {
  std::string word = "handler_timeout";
  word[*rc::gen::inRange<std::size_t>(0, word.size())] = *rc::gen::inRange('a', '{');
  RC_ASSERT(suggest(word, kKeys) == "handler_timeout");
}

}  // namespace
}  // namespace turnstile::detail
