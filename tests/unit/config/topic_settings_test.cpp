#include "turnstile/topic_settings.hpp"

#include <gtest/gtest.h>

namespace turnstile {
namespace {

using namespace std::chrono_literals;

TopicSettings all_set(std::int64_t number, const std::string& text, bool flag) {
  TopicSettings s;
  s.handler = text;
  s.mode = flag ? Mode::transactional : Mode::at_least_once;
  s.order = flag ? Order::key : Order::none;
  s.limiter = text;
  s.limit = number;
  s.message_id = text;
  s.keep_ids_for = std::chrono::seconds(number);
  s.handler_timeout = std::chrono::milliseconds(number);
  s.retry = RetryPolicy{static_cast<int>(number), 1ms, 2ms};
  s.dead_letter = text;
  s.batch = number;
  s.duplicates = flag ? DuplicatePolicy::raise : DuplicatePolicy::skip;
  s.fingerprint = flag;
  return s;
}

void expect_equal(const TopicSettings& a, const TopicSettings& b) {
  EXPECT_EQ(a.handler, b.handler);
  EXPECT_EQ(a.mode, b.mode);
  EXPECT_EQ(a.order, b.order);
  EXPECT_EQ(a.limiter, b.limiter);
  EXPECT_EQ(a.limit, b.limit);
  EXPECT_EQ(a.message_id, b.message_id);
  EXPECT_EQ(a.keep_ids_for, b.keep_ids_for);
  EXPECT_EQ(a.handler_timeout, b.handler_timeout);
  EXPECT_EQ(a.retry, b.retry);
  EXPECT_EQ(a.dead_letter, b.dead_letter);
  EXPECT_EQ(a.batch, b.batch);
  EXPECT_EQ(a.duplicates, b.duplicates);
  EXPECT_EQ(a.fingerprint, b.fingerprint);
}

TEST(MergeTest, what_is_set_over_it_wins) {
  expect_equal(merge(all_set(1, "code", true), all_set(2, "file", false)), all_set(2, "file", false));
}

TEST(MergeTest, what_is_not_set_over_it_stays) {
  expect_equal(merge(all_set(1, "code", true), TopicSettings{}), all_set(1, "code", true));
}

TEST(MergeTest, an_empty_dead_letter_is_set) {
  TopicSettings code, file;
  code.dead_letter = "elsewhere";
  file.dead_letter = "";
  EXPECT_EQ(merge(code, file).dead_letter, "");
}

}  // namespace
}  // namespace turnstile
