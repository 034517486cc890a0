// The keys of `turnstile top`, and the questions that change a limit.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cli/src/top/fit.hpp"
#include "cli/src/top/keys.hpp"

namespace turnstile::cli::top {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using Kind = Key::Kind;

std::vector<Kind> kinds(const std::vector<Key>& keys) {
  std::vector<Kind> all;
  for (const auto& key : keys) all.push_back(key.kind);
  return all;
}

TEST(TopKeys, characters_enter_and_backspace_are_keys) {
  const auto keys = KeyParser().parse("q\r\x7f\t");
  EXPECT_EQ(kinds(keys), (std::vector{Kind::character, Kind::enter, Kind::backspace, Kind::next}));
  EXPECT_EQ(keys[0].character, 'q');
}

TEST(TopKeys, arrows_are_one_key_and_unknown_sequences_are_none) {
  EXPECT_EQ(kinds(KeyParser().parse("\x1b[A\x1bOB\x1b[15~\x1b[1;5C")), (std::vector{Kind::previous, Kind::next}));
}

TEST(TopKeys, a_sequence_in_pieces_types_no_letters) {
  KeyParser parser;
  EXPECT_EQ(kinds(parser.parse("\x1b")), (std::vector{Kind::escape}));
  EXPECT_EQ(kinds(parser.parse("[")), std::vector<Kind>{});
  EXPECT_EQ(kinds(parser.parse("B")), (std::vector{Kind::next}));
}

TEST(TopKeys, bytes_that_no_key_sends_are_dropped) {
  EXPECT_TRUE(KeyParser().parse(std::string("\0\x01\xff\xc3\xa4", 5)).empty());
}

class TopLimitDialog : public ::testing::Test {
 protected:
  TopLimitDialog() { dialog_.begin(); }

  std::optional<LimitChange> type(const std::string& bytes) {
    std::optional<LimitChange> change;
    for (const auto& key : KeyParser().parse(bytes)) {
      if (auto confirmed = dialog_.press(key, limiters_)) change = confirmed;
    }
    return change;
  }
  [[nodiscard]] std::string question(std::size_t columns = 80) const { return dialog_.question(limiters_, columns); }

  std::vector<LimiterView> limiters_{{.limiter = "mail", .limit = 8},
                                     {.limiter = "psp", .limit = 64, .set = true},
                                     {.limiter = "psp-eu", .limit = 32}};
  LimitDialog dialog_;
};

TEST_F(TopLimitDialog, a_limit_is_changed_after_a_confirmation) {
  EXPECT_FALSE(type("eu\r16\r"));
  EXPECT_EQ(question(), "set psp-eu (now 32) to 16, for all processes? y/n");
  const auto change = type("y");
  ASSERT_TRUE(change);
  EXPECT_EQ(change->limiter, "psp-eu");
  EXPECT_EQ(change->limit, 16);
  EXPECT_FALSE(dialog_.open());
}

TEST_F(TopLimitDialog, no_and_escape_change_nothing) {
  EXPECT_FALSE(type("eu\r16\rn"));
  EXPECT_FALSE(dialog_.open());
  dialog_.begin();
  EXPECT_FALSE(type("eu\r16\r\x1b"));
  EXPECT_FALSE(dialog_.open());
}

TEST_F(TopLimitDialog, enter_does_not_confirm) {
  EXPECT_FALSE(type("eu\r16\r\r\r"));
  EXPECT_TRUE(dialog_.open());
}

TEST_F(TopLimitDialog, a_whole_name_comes_before_longer_names) {
  EXPECT_THAT((type("psp"), question()), HasSubstr("-> psp  (1 of 2)"));
}

TEST_F(TopLimitDialog, tab_and_arrows_go_through_the_names) {
  EXPECT_THAT(question(), HasSubstr("-> mail  (1 of 3)"));
  type("\t\t");
  EXPECT_THAT(question(), HasSubstr("-> psp-eu  (3 of 3)"));
  type("\x1b[B");
  EXPECT_THAT(question(), HasSubstr("-> mail"));
  type("\x1b[A");
  EXPECT_THAT(question(), HasSubstr("-> psp-eu"));
}

TEST_F(TopLimitDialog, zero_pauses_and_u_unsets) {
  EXPECT_EQ(type("mail\r0\ry")->limit, 0);
  dialog_.begin();
  type("psp\ru\r");
  EXPECT_EQ(question(), "unset psp (now 64, set), for all processes? y/n");
  const auto change = type("y");
  ASSERT_TRUE(change);
  EXPECT_EQ(change->limit, std::nullopt);
}

TEST_F(TopLimitDialog, letters_are_no_number) {
  type("mail\r1x2-\r");
  EXPECT_THAT(question(), HasSubstr("to 12,"));
}

TEST_F(TopLimitDialog, a_name_that_matches_nothing_is_not_chosen) {
  type("nothing\r");
  EXPECT_THAT(question(), HasSubstr("no such limiter"));
  type("\x7f\x7f\x7f\x7f\x7f\x7f\x7f\r");
  EXPECT_THAT(question(), StartsWith("mail (now 8): new limit"));
}

TEST_F(TopLimitDialog, the_chosen_name_stays_when_the_limiters_change) {
  type("eu\r16\r");
  limiters_.insert(limiters_.begin(), {.limiter = "a-eu", .limit = 1});
  limiters_.pop_back();
  EXPECT_THAT(question(), StartsWith("set psp-eu (gone)"));
  EXPECT_EQ(type("y")->limiter, "psp-eu");
}

TEST_F(TopLimitDialog, without_limiters_it_says_so) {
  limiters_.clear();
  EXPECT_THAT((type("\r\t"), question()), HasSubstr("no limits"));
}

TEST_F(TopLimitDialog, a_hostile_name_is_escaped_and_its_question_stays_visible) {
  limiters_ = {{.limiter = "\x1b[2J" + std::string(250, 'x'), .limit = 1}};
  EXPECT_EQ(columns_of(question()), 80U);
  type("\r7\r");
  EXPECT_THAT(question(), Not(HasSubstr("\x1b")));
  EXPECT_THAT(question(), HasSubstr("to 7, for all processes? y/n"));
  EXPECT_LE(columns_of(question(20)), 20U);
  EXPECT_EQ(type("y")->limiter, limiters_[0].limiter);
}

}  // namespace
}  // namespace turnstile::cli::top
