// Relations between settings, once code and configuration are merged.

#include "config/check.hpp"

#include <gtest/gtest.h>

namespace turnstile::detail {
namespace {

using namespace std::chrono_literals;
using Lines = std::vector<std::string>;

Config with_database() {
  Config config;
  config.postgres.emplace().url = Secret("host=x");
  return config;
}

TopicSettings transactional() {
  TopicSettings settings;
  settings.mode = Mode::transactional;
  return settings;
}

TEST(CheckTopicTest, defaults_are_right) {
  EXPECT_EQ(check_topic(Config{}, "payments", {}), Lines{});
  EXPECT_EQ(check_topic(with_database(), "payments", transactional()), Lines{});
}

TEST(CheckTopicTest, what_code_set_wrong_is_told_like_the_file) {
  TopicSettings settings;
  settings.handler = "";
  settings.limit = 0;
  settings.limiter = "";
  settings.batch = 0;
  settings.keep_ids_for = 0s;
  settings.handler_timeout = 0ms;
  settings.message_id = "uuid";
  settings.retry = RetryPolicy{0, 0ms, -1ms};
  settings.dead_letter = "no good";
  EXPECT_EQ(
      check_topic(Config{}, "payments", settings),
      (Lines{
          "topics.payments.handler: must not be empty", "topics.payments.limiter: must not be empty",
          "topics.payments.limit: is 0, but must be at least 1: it is the largest number of running handlers",
          "topics.payments.batch: is 0, but must be at least 1 message",
          "topics.payments.keep_ids_for: must be at least 1s", "topics.payments.handler_timeout: must be at least 1ms",
          "topics.payments.dead_letter: 'no good' is not a valid topic name: Kafka allows 1 to 249 letters, digits, "
          "'.', '_' and '-'",
          "topics.payments.message_id: 'uuid' is not a source of ids; use header:NAME, key, json:/pointer, cloudevents "
          "or offset",
          "topics.payments.retry.attempts: is 0, but must be at least 1: the first run counts as an attempt",
          "topics.payments.retry.backoff: must begin at 1ms or more",
          "topics.payments.retry.backoff: has a longest wait of -1ms, which is below its first wait of 0ms"}));
}

TEST(CheckTopicTest, a_wait_that_outlives_the_service) {
  TopicSettings settings = transactional();
  settings.retry = RetryPolicy{5, 1ms, std::chrono::hours(24 * 3650), DurableRetry::later_messages_wait};
  EXPECT_EQ(check_topic(with_database(), "payments", settings), Lines{});
  settings.retry->cap = std::chrono::hours(24 * 3651);
  EXPECT_EQ(check_topic(with_database(), "payments", settings),
            Lines{"topics.payments.retry.backoff: has a longest wait of 3651d, but the longest one is 3650d"});
}

TEST(CheckTopicTest, a_topic_that_kafka_would_not_take) {
  EXPECT_EQ(
      check_topic(Config{}, "pay ments", {}),
      Lines{"topics.pay ments: 'pay ments' is not a valid topic name: Kafka allows 1 to 249 letters, digits, '.', '_' "
            "and '-'"});
}

TEST(CheckTopicTest, transactional_needs_a_database) {
  EXPECT_EQ(check_topic(Config{}, "payments", transactional()),
            Lines{"topics.payments.mode: transactional needs a database, but there is no [postgres]; set postgres.url "
                  "(TURNSTILE_POSTGRES_URL), or set the mode to at_least_once"});
}

TEST(CheckTopicTest, raise_needs_a_dead_letter_topic_in_a_consumer) {
  TopicSettings settings = transactional();
  settings.duplicates = DuplicatePolicy::raise;
  EXPECT_EQ(
      check_topic(with_database(), "payments", settings),
      Lines{
          "topics.payments.duplicates: raise makes a dead letter of each duplicate, but the topic has no dead_letter; "
          "set dead_letter, or set duplicates to skip"});
  EXPECT_EQ(check_topic(with_database(), "payments", settings, RunBy::poll_loop), Lines{});
  settings.dead_letter = "";
  EXPECT_EQ(check_topic(with_database(), "payments", settings), Lines{});
}

TEST(CheckTopicTest, what_needs_kept_ids_is_refused_without_them) {
  TopicSettings settings;
  settings.duplicates = DuplicatePolicy::raise;
  settings.dead_letter = "";
  settings.fingerprint = true;
  EXPECT_EQ(
      check_topic(with_database(), "payments", settings),
      (Lines{"topics.payments.duplicates: raise needs stored ids, but mode at_least_once stores none; set the mode to "
             "transactional or leased",
             "topics.payments.fingerprint: needs stored ids, but mode at_least_once stores none; set the mode to "
             "transactional or leased"}));
}

TEST(CheckTopicTest, long_retries_need_ids_that_a_record_keeps_and_an_order_to_keep) {
  TopicSettings settings = transactional();
  settings.retry = RetryPolicy{5, 1min, 1h, DurableRetry::later_messages_wait};
  EXPECT_EQ(check_topic(with_database(), "payments", settings), Lines{});
  settings.order = Order::none;
  EXPECT_EQ(
      check_topic(with_database(), "payments", settings),
      Lines{"topics.payments.retry.durable: wait keeps the order of each key, but order is none; set order to key, "
            "or retry.durable to pass"});
  settings.retry->durable = DurableRetry::later_messages_pass;
  EXPECT_EQ(check_topic(with_database(), "payments", settings), Lines{});
  settings.message_id = "offset";
  EXPECT_EQ(check_topic(with_database(), "payments", settings),
            Lines{"topics.payments.retry.durable: sends a failed message again with the same id, but message_id is "
                  "offset, which changes then; take the id from the message, or remove retry.durable"});
  settings.message_id.reset();
  settings.mode = Mode::leased;
  EXPECT_EQ(check_topic(with_database(), "payments", settings),
            Lines{"topics.payments.retry.durable: stores failed messages by their ids, in the transaction of the "
                  "handler, but the mode is leased; set the mode to transactional, or remove retry.durable"});
}

TEST(CheckTopicTest, a_limiter_needs_a_limit) {
  TopicSettings settings;
  settings.limiter = "psp";
  EXPECT_EQ(check_topic(Config{}, "payments", settings),
            Lines{"topics.payments.limiter: names 'psp', but the topic has no limit; set limit too"});
}

TEST(CheckTopicTest, a_setting_from_the_file_is_told_with_its_line) {
  Config config;
  config.source = "turnstile.toml";
  config.lines["topics.payments.limiter"] = 12;
  TopicSettings settings;
  settings.limiter = "psp";
  EXPECT_TRUE(
      check_topic(config, "payments", settings).at(0).starts_with("turnstile.toml:12: topics.payments.limiter: "));
}

}  // namespace
}  // namespace turnstile::detail
