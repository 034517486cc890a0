// The worst ids that a producer can make, on the real PostgreSQL and the real Apache Kafka.

#include <gtest/gtest.h>

#include "tests/support/running.hpp"
#include "tests/support/world.hpp"
#include "turnstile/turnstile.hpp"

namespace turnstile::test {
namespace {

using namespace std::chrono_literals;

class Ids : public ::testing::Test {
 protected:
  void SetUp() override {
    TURNSTILE_NEEDS_SERVERS();
    world_ = std::make_unique<World>(1);
  }
  void start() {
    consumer_ = std::make_unique<Running>(world_->config(), [this](Consumer& app) {
      app.topic(world_->topic(),
                [this](const Message& message, Context& context) { make_effect(world_->schema(), message, context); } |
                    transactional() | retry(exponential{1ms, 1}) | dead_letter());
    });
  }
  void expect_settled(std::int64_t effects, int dead) {
    EXPECT_TRUE(eventually([&] { return world_->caught_up(); })) << consumer_->log_text();
    EXPECT_EQ(world_->effects().rows, effects) << consumer_->log_text();
    EXPECT_EQ(world_->query("SELECT count(*) FROM dead"), std::to_string(dead)) << consumer_->log_text();
  }

  std::unique_ptr<World> world_;
  std::unique_ptr<Running> consumer_;
};

TEST_F(Ids, may_be_a_megabyte_long) {
  std::string id(1'000'000, 'x');
  for (int i = 0; i < 2; ++i) world_->publish({{"message-id", id}}, "first");
  id.back() = 'y';
  world_->publish({{"message-id", id}}, "another, different in its last byte");
  start();
  expect_settled(2, 0);
}

TEST_F(Ids, may_hold_any_bytes) {
  const std::vector<std::string> ids{std::string("a\0b", 3),
                                     std::string("a\0c", 3),
                                     std::string("\0", 1),
                                     "\xFF\xFE\x80",
                                     "'; DROP TABLE inbox; --",
                                     "\n",
                                     " "};
  for (int i = 0; i < 2; ++i) {
    for (const auto& id : ids) world_->publish({{"message-id", id}}, "payload");
  }
  start();
  expect_settled(static_cast<std::int64_t>(ids.size()), 0);
}

TEST_F(Ids, that_are_missing_empty_or_doubled_make_a_dead_letter_that_says_so) {
  world_->publish(std::vector<Header>{}, "absent");
  world_->publish({{"Message-Id", "x"}}, "another header");
  world_->publish({{"message-id", ""}}, "empty");
  world_->publish({{"message-id", std::nullopt}}, "null");
  world_->publish({{"message-id", "x"}, {"message-id", "y"}}, "two");
  world_->publish({{"message-id", "good"}}, "behind them");
  start();
  expect_settled(1, 5);
  const auto why = [&](int offset) {
    return world_->query("SELECT reason || ': ' || error FROM dead WHERE record_offset = " + std::to_string(offset));
  };
  EXPECT_EQ(why(0), "missing_id: header 'message-id' is absent");
  EXPECT_EQ(why(1), "missing_id: header 'message-id' is absent");
  EXPECT_EQ(why(2), "missing_id: header 'message-id' is empty");
  EXPECT_EQ(why(3), "missing_id: header 'message-id' has no value");
  EXPECT_EQ(why(4), "missing_id: header 'message-id' appears 2 times");
  EXPECT_EQ(world_->query("SELECT count(*) FROM dead WHERE dead_topic = '" + world_->dead_topic() + "'"), "5");
  EXPECT_GE(
      consumer_->lines_with("(missing_id after 0 attempts): header 'message-id' is absent code=dead_lettered topic=" +
                            world_->topic() + " partition=0 offset=0"),
      1)
      << consumer_->log_text();
}

TEST_F(Ids, are_not_written_to_the_log) {
  world_->publish({{"message-id", "a-very-secret-id"}}, "fine");
  world_->publish({{"message-id", "a-very-secret-id"}}, "fine");
  start();
  expect_settled(1, 0);
  EXPECT_EQ(consumer_->lines_with("a-very-secret-id"), 0) << consumer_->log_text();
}

}  // namespace
}  // namespace turnstile::test
